/* SPDX-License-Identifier: BSD-3-Clause */
/* fence.c - see fence.h.
 *
 * The counter does not overflow: it starts at FENCE_RAISE_LIMIT at most, and is still below
 * LOCK_FENCE_LIMIT after 2^61 grants.
 *
 * Why the jump of fence_resume() is enough: while the counter is ahead of the clock, each grant
 * adds 1. A request can put the counter at most FENCE_AHEAD_MAX_US ahead of the clock, and a server
 * grants far fewer than FENCE_JUMP_US locks before the clock has caught up. */
#include "fence.h"

#define FENCE_JUMP_US (INT64_C(60) * 1000000)

static int64_t last;
static fence_time highest_clock;

/* The wall clock, as if nobody had ever set it back. */
static int64_t clock_us(fence_time now) {
    int64_t estimate_us = highest_clock.wall_us + (now.boot_us - highest_clock.boot_us);
    if (highest_clock.wall_us != 0 && now.wall_us < estimate_us) return estimate_us;
    highest_clock = now;
    return now.wall_us;
}

int64_t fence_next(fence_time now, int64_t at_least) {
    clock_us(now);
    int64_t lowest = at_least > now.wall_us ? at_least : now.wall_us;
    last = lowest > last ? lowest : last + 1;
    return last;
}

bool fence_may_ask_for(int64_t wanted, fence_time now) {
    return wanted <= last || wanted <= clock_us(now) + FENCE_AHEAD_MAX_US;
}

void fence_raise(int64_t seen) {
    if (seen > last && seen < FENCE_RAISE_LIMIT) last = seen;
}

void fence_resume(int64_t wall_us) {
    if (last <= wall_us) return;
    int64_t highest = wall_us + FENCE_AHEAD_MAX_US;
    last = (last > highest ? last : highest) + FENCE_JUMP_US;
}

int64_t fence_last(void) {
    return last;
}
