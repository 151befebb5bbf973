/* SPDX-License-Identifier: BSD-3-Clause */
/* environment.c - see environment.h. */
#define _GNU_SOURCE /* ppoll, CLOCK_BOOTTIME */
#include "environment.h"

#include "deadline.h"
#include "random.h"
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int64_t now_us(const environment *self) {
    (void)self;
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void sleep_until(const environment *self, int64_t at_us, int wake_fd) {
    int64_t left_us = deadline_left_us(at_us, now_us(self));
    if (left_us == 0) return;
    struct timespec left = {.tv_sec = (time_t)(left_us / 1000000),
                            .tv_nsec = (long)(left_us % 1000000 * 1000)};
    struct pollfd waker = {.fd = wake_fd, .events = POLLIN};
    ppoll(&waker, 1, at_us == DEADLINE_NEVER ? NULL : &left, NULL);
}

static void listen_until(const environment *self, int64_t at_us, const atomic_uint *bell,
                         unsigned heard) {
    int64_t left_us = deadline_left_us(at_us, now_us(self));
    struct timespec left = {.tv_sec = (time_t)(left_us / 1000000),
                            .tv_nsec = (long)(left_us % 1000000 * 1000)};
    if (left_us == 0) return;
    syscall(SYS_futex, bell, FUTEX_WAIT_PRIVATE, heard, at_us == DEADLINE_NEVER ? NULL : &left,
            NULL, 0);
}

static uint64_t chance(const environment *self) {
    (void)self;
    uint64_t bits = 0;
    random_fill(&bits, sizeof(bits));
    return bits;
}

static int64_t unix_us(const environment *self) {
    (void)self;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

const environment *environment_system(void) {
    static const environment system = {now_us, sleep_until, chance, listen_until, unix_us};
    return &system;
}
