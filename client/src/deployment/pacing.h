/* SPDX-License-Identifier: BSD-3-Clause */
/* pacing.h - how soon a name is read again after a change: at once, but a name that changes all the
 * time is read with pauses that double. Else each holder of a busy shared lock would read each
 * change, and a server whose tracking table is full would send a hint for each read. Pure. */
#pragma once
#include "base/clock.h"

enum { PACING_FREE = 4, PACING_READS_MAX = 20 };

/* {0} at first. */
typedef struct pacing {
    int quick_reads; /* in a row, each less than two of the longest pauses after the one before */
    int64_t read_us;
} pacing;

static inline void pacing_note_read(pacing *pacing, int64_t now_us, int64_t pause_max_ms) {
    if (now_us - pacing->read_us >= pause_max_ms * 2000)
        pacing->quick_reads = 0;
    else if (pacing->quick_reads < PACING_READS_MAX)
        pacing->quick_reads++;
    pacing->read_us = now_us;
}

/* The next read is not sooner. */
static inline int64_t pacing_next_us(const pacing *pacing, int64_t pause_max_ms) {
    int over = pacing->quick_reads - PACING_FREE;
    if (over < 0) return 0;
    return deadline_after_ms(pacing->read_us, deadline_earlier((int64_t)1 << over, pause_max_ms));
}
