/* SPDX-License-Identifier: BSD-3-Clause */
/* breaker.c - see breaker.h. */
#include "net/breaker.h"

enum { FAILURES_TOLERATED = 2, PAUSE_FIRST_US = 100000, PAUSE_MAX_US = 2000000 };

/* The pause doubles each time. */
static void open_circuit(breaker *breaker, int64_t now_us) {
    int64_t pause_us = breaker->pause_us == 0 ? PAUSE_FIRST_US : breaker->pause_us * 2;
    breaker->pause_us = pause_us < PAUSE_MAX_US ? pause_us : PAUSE_MAX_US;
    breaker->until_us = now_us + breaker->pause_us;
}

bool breaker_allows(breaker *breaker, int64_t now_us) {
    if (breaker->until_us == 0) return true;
    if (now_us < breaker->until_us) return false;
    /* Half open: the trial of this caller counts as a failure until the caller notes a success. */
    open_circuit(breaker, now_us);
    return true;
}

void breaker_note(breaker *breaker, bool is_success, int64_t now_us) {
    if (is_success)
        *breaker = (struct breaker){0};
    else if (breaker->until_us == 0 && ++breaker->failures > FAILURES_TOLERATED)
        /* While the circuit is open, more failures are no news: many requests fail at the same time
         * for the same reason. */
        open_circuit(breaker, now_us);
}
