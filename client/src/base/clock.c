/* SPDX-License-Identifier: BSD-3-Clause */
/* clock.c - see clock.h: the clocks and the random bytes of the system. */
#define _GNU_SOURCE /* CLOCK_BOOTTIME */
#include "base/clock.h"

#include <stddef.h>
#include <time.h>
#include <unistd.h>

static int64_t read_us(clockid_t id) {
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int64_t now_us(const clock_source *clock) {
    (void)clock;
    return read_us(CLOCK_BOOTTIME);
}

static int64_t unix_us(const clock_source *clock) {
    (void)clock;
    return read_us(CLOCK_REALTIME);
}

static uint64_t random_bits(const clock_source *clock) {
    (void)clock;
    uint64_t bits;
    return getentropy(&bits, sizeof(bits)) == 0 ? bits : 0;
}

const clock_source *clock_system(void) {
    static const clock_source system = {now_us, unix_us, random_bits, NULL};
    return &system;
}
