/* SPDX-License-Identifier: BSD-3-Clause */
/* deadline.h - deadlines: points in time, in microseconds of one clock; how long a lease is sure;
 * and the pause after an attempt that failed. Pure. */
#pragma once
#include <stdint.h>

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

/* -- pauses: random, so that losers do not retry together */

typedef struct backoff {
    uint32_t min_ms;
    uint32_t random_ms; /* the pause is random in [min, min + random) */
    uint32_t max_ms;    /* 0: constant; else doubled with each failure, then random in
                         * [max / 2, max] */
} backoff;

/* The pause after this many failures, 1 or more. chance: 64 random bits. Never longer than
 * left_us. */
static inline int64_t backoff_pause_us(const backoff *rule, uint32_t failures, uint64_t chance,
                                       int64_t left_us) {
    uint64_t random_us = (uint64_t)rule->random_ms * 1000;
    int64_t pause_us = (int64_t)rule->min_ms * 1000, max_us = (int64_t)rule->max_ms * 1000;
    if (random_us > 0) pause_us += (int64_t)(chance % random_us);
    for (uint32_t i = 1; i < failures && 0 < pause_us && pause_us < max_us; i++)
        pause_us *= 2;
    if (max_us > 0 && pause_us >= max_us)
        pause_us = max_us - (int64_t)(chance % (uint64_t)(max_us / 2 + 1));
    return pause_us < left_us ? pause_us : left_us;
}
