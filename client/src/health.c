/* SPDX-License-Identifier: BSD-3-Clause */
/* health.c - see health.h. */
#include "health.h"

enum { FAILURES_BORNE = 2, PAUSE_FIRST_US = 100000, PAUSE_MAX_US = 2000000 };

static int64_t pause_us(unsigned failures) {
    int64_t pause = PAUSE_FIRST_US;
    for (unsigned i = FAILURES_BORNE + 1; i < failures && pause < PAUSE_MAX_US; i++)
        pause *= 2;
    return pause < PAUSE_MAX_US ? pause : PAUSE_MAX_US;
}

bool health_is_left_alone(health *of, int64_t now_us) {
    int64_t until_us = atomic_load(&of->until_us);
    if (until_us == 0) return false;
    if (now_us < until_us) return true;
    unsigned failures = atomic_load(&of->failures) + 1; /* until it is known better */
    int64_t next_us = now_us + pause_us(failures);
    if (!atomic_compare_exchange_strong(&of->until_us, &until_us, next_us)) return true;
    atomic_store(&of->failures, failures);
    return false;
}

void health_note(health *of, bool is_well, int64_t now_us) {
    if (is_well) {
        if (atomic_load(&of->failures) == 0) return;
        atomic_store(&of->failures, 0);
        atomic_store(&of->until_us, 0);
        return;
    }
    /* It is known already, if it is left alone: many fail at the same time for the same reason. */
    if (atomic_load(&of->until_us) != 0) return;
    unsigned failures = atomic_fetch_add(&of->failures, 1) + 1;
    if (failures > FAILURES_BORNE) atomic_store(&of->until_us, now_us + pause_us(failures));
}
