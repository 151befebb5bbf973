/* SPDX-License-Identifier: BSD-3-Clause */
/* clock.h - time and chance behind a table of functions, so that a unit test of waiting takes no
 * time; and deadlines: points in time, in microseconds of one clock. */
#pragma once
#include <stdint.h>

typedef struct clock_source clock_source;

struct clock_source {
    /* Microseconds on CLOCK_BOOTTIME, which nobody can set and which counts suspend. */
    int64_t (*now_us)(const clock_source *clock);
    /* Microseconds of the wall clock, for log lines and proposed fences only. */
    int64_t (*unix_us)(const clock_source *clock);
    uint64_t (*random_bits)(const clock_source *clock);
    /* NULL: time passes. Else a fake clock: called instead of sleeping. */
    void (*skip_to)(const clock_source *clock, int64_t until_us);
};

const clock_source *clock_system(void);

static inline int64_t clock_now_us(const clock_source *clock) {
    return clock->now_us(clock);
}

/* -- deadlines. Pure */

#define DEADLINE_NEVER INT64_MAX

/* DEADLINE_NEVER for a negative wait. */
static inline int64_t deadline_after_ms(int64_t now_us, int64_t wait_ms) {
    if (wait_ms < 0 || wait_ms > (DEADLINE_NEVER - now_us) / 1000) return DEADLINE_NEVER;
    return now_us + wait_ms * 1000;
}

static inline int64_t deadline_earlier(int64_t one_us, int64_t other_us) {
    return one_us < other_us ? one_us : other_us;
}

/* 0 once the deadline has come. */
static inline int64_t deadline_left_us(int64_t deadline_us, int64_t now_us) {
    if (deadline_us == DEADLINE_NEVER) return DEADLINE_NEVER;
    return deadline_us > now_us ? deadline_us - now_us : 0;
}

/* -- validity: how long a lease, or a session, is certainly alive. Pure */

enum { DRIFT_PER_MS_US = 10, DRIFT_US = 2000, LEAD_PARTS = 50, LEAD_MAX_US = 50000 };

/* The end of the validity of a lease requested at asked_us, less an allowance for a server's clock
 * that runs faster than ours: 1 % of the lease and 2 ms. */
static inline int64_t validity_end_us(int64_t asked_us, uint32_t lease_ms) {
    int64_t lease_us = (int64_t)lease_ms * 1000;
    int64_t drift_us = (int64_t)lease_ms * DRIFT_PER_MS_US + DRIFT_US;
    return lease_us > drift_us ? asked_us + lease_us - drift_us : asked_us;
}

/* Where the program is to be told in time, the lock counts as gone so long before its validity
 * ends: a fiftieth of the lease, 50 ms at most. */
static inline int64_t validity_lead_us(uint32_t lease_ms) {
    return deadline_earlier((int64_t)lease_ms * 1000 / LEAD_PARTS, LEAD_MAX_US);
}
