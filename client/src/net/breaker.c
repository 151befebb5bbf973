/* SPDX-License-Identifier: BSD-3-Clause */
/* breaker.c - see breaker.h. */
#include "net/breaker.h"

enum { FAILURES_TOLERATED = 2, PAUSE_FIRST_US = 100000, PAUSE_MAX_US = 2000000 };

/* Doubled with each failure. */
static int64_t pause_us(unsigned failures) {
    int64_t pause = PAUSE_FIRST_US;
    for (unsigned i = FAILURES_TOLERATED + 1; i < failures && pause < PAUSE_MAX_US; i++)
        pause *= 2;
    return pause < PAUSE_MAX_US ? pause : PAUSE_MAX_US;
}

bool breaker_allows(breaker *breaker, int64_t now_us) {
    if (breaker->until_us == 0) return true;
    if (now_us < breaker->until_us) return false;
    /* Half open: the trial of this caller counts as a failure until the caller notes a success. */
    breaker->failures++;
    breaker->until_us = now_us + pause_us(breaker->failures);
    return true;
}

void breaker_note(breaker *breaker, bool is_success, int64_t now_us) {
    if (is_success) {
        breaker->failures = 0;
        breaker->until_us = 0;
    } else if (breaker->until_us == 0 && ++breaker->failures > FAILURES_TOLERATED) {
        /* While the circuit is open, more failures are no news: many requests fail at the same time
         * for the same reason. */
        breaker->until_us = now_us + pause_us(breaker->failures);
    }
}
