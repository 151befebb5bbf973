/* SPDX-License-Identifier: BSD-3-Clause */
/* fence.h - the server's one fence counter.
 *
 * A fence is max(last + 1, unix time in microseconds): it grows with every grant, whatever the
 * name, and needs no key of its own. Being no smaller than the time, it keeps growing after a
 * restart that forgot the last one; being no smaller than the last one, it keeps growing while
 * the clock steps back. Every fence that arrives from a file or a master raises the counter.
 * Pure; main thread only. */
#ifndef DLOCK_FENCE_H
#define DLOCK_FENCE_H

#include <stdbool.h>
#include <stdint.h>

/* How far ahead of the clock a client may ask for a fence: 5 minutes. */
#define FENCE_AHEAD_MAX_US (INT64_C(5) * 60 * 1000000)

/* No clock reaches this in tens of thousands of years: a fence from here on is forged. */
#define FENCE_RAISE_LIMIT (INT64_C(1) << 61)

/* Two clocks read at one moment. */
typedef struct fence_time {
    int64_t wall_us; /* unix time, which may be set */
    int64_t boot_us; /* since boot, which only grows */
} fence_time;

/* The fence of a new grant, at least at_least (0: any); counts. */
int64_t fence_next(fence_time now, int64_t at_least);

/* May a client ask for this fence? Not if it is more than FENCE_AHEAD_MAX_US ahead of the clock.
 * The clock is the wall clock, or, if that was set back, its highest value so far plus the time
 * that has passed since. It does not depend on earlier requests, so that clients cannot push the
 * counter ahead step by step. */
bool fence_may_ask_for(int64_t wanted, fence_time now);

/* A file or a master has used this fence: the next one will be above it. */
void fence_raise(int64_t seen);

/* This server begins to give out fences: it has loaded its file, or was promoted. If the counter is
 * ahead of the clock, its predecessor may have given out more fences than we have heard of, so
 * the counter jumps over all that it can have given. */
void fence_resume(int64_t wall_us);

/* The highest fence given or seen; 0 when there was none. */
int64_t fence_last(void);

#endif
