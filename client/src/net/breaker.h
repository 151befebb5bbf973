/* SPDX-License-Identifier: BSD-3-Clause */
/* breaker.h - a circuit breaker: after some failures in a row a server is not tried for a moment,
 * so that not every call pays for the failure. Half open: after the pause a single caller may try
 * the server; for all other callers the circuit stays open. Pure. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* All zero: closed. */
typedef struct breaker {
    unsigned failures; /* in a row; not counted while the circuit is open */
    int64_t pause_us;  /* how long the circuit was open the last time */
    int64_t until_us;  /* open until then; 0: closed */
} breaker;

enum { BREAKER_FAILURES = 2, BREAKER_FIRST_US = 100000, BREAKER_MAX_US = 2000000 };

/* The pause doubles each time. */
static inline void breaker_open(breaker *breaker, int64_t now_us) {
    int64_t pause_us = breaker->pause_us == 0 ? BREAKER_FIRST_US : breaker->pause_us * 2;
    breaker->pause_us = pause_us < BREAKER_MAX_US ? pause_us : BREAKER_MAX_US;
    breaker->until_us = now_us + breaker->pause_us;
}

static inline bool breaker_allows(breaker *breaker, int64_t now_us) {
    if (breaker->until_us == 0) return true;
    if (now_us < breaker->until_us) return false;
    /* Half open: the trial of this caller counts as a failure until the caller notes a success. */
    breaker_open(breaker, now_us);
    return true;
}

static inline void breaker_note(breaker *breaker, bool is_success, int64_t now_us) {
    if (is_success)
        *breaker = (struct breaker){0};
    else if (breaker->until_us == 0 && ++breaker->failures > BREAKER_FAILURES)
        /* While the circuit is open, more failures are no news: many requests fail at the same time
         * for the same reason. */
        breaker_open(breaker, now_us);
}
