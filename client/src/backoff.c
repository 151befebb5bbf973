/* SPDX-License-Identifier: BSD-3-Clause */
/* backoff.c - see backoff.h. */
#include "backoff.h"

static int64_t grown_us(const backoff *rule, uint32_t failures, uint64_t chance, int64_t pause_us) {
    int64_t max_us = (int64_t)rule->max_ms * 1000;
    for (uint32_t i = 1; i < failures && 0 < pause_us && pause_us < max_us; i++)
        pause_us *= 2;
    return pause_us < max_us ? pause_us : max_us - (int64_t)(chance % (uint64_t)(max_us / 2 + 1));
}

int64_t backoff_pause_us(const backoff *rule, uint32_t failures, uint64_t chance, int64_t left_us) {
    uint64_t random_us = (uint64_t)rule->random_ms * 1000;
    int64_t pause_us = (int64_t)rule->min_ms * 1000;
    if (random_us > 0) pause_us += (int64_t)(chance % random_us);
    if (rule->max_ms > 0) pause_us = grown_us(rule, failures, chance, pause_us);
    return pause_us < left_us ? pause_us : left_us;
}
