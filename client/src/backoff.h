/* SPDX-License-Identifier: BSD-3-Clause */
/* backoff.h - how long to pause after a failed attempt, so that losers do not wake together.
 * Pure. */
#ifndef DLOCK_BACKOFF_H
#define DLOCK_BACKOFF_H

#include <stdint.h>

typedef struct backoff {
    uint32_t min_ms;
    uint32_t random_ms; /* the pause is random in [min, min + random) */
    uint32_t max_ms;    /* 0: it does not grow; else it doubles with each failure, up to random in
                         * [max / 2, max] */
} backoff;

/* After the failure number failures, from 1 on. chance: 64 random bits. Never longer than what is
 * left. */
int64_t backoff_pause_us(const backoff *rule, uint32_t failures, uint64_t chance, int64_t left_us);

#endif
