/* SPDX-License-Identifier: BSD-3-Clause */
/* fence.h - the fence counter of the server.
 *
 *   fence = max(last fence + 1, unix time in microseconds)
 *
 * A fence grows with every grant, whichever lock is granted, and needs no key in the database.
 * Because of the time, fences keep growing after a restart that forgot the last fence. Because
 * of the last fence, fences keep growing while the clock steps back. Every fence from a file or
 * a master raises the counter. Pure; main thread only. */
#ifndef DLOCK_FENCE_H
#define DLOCK_FENCE_H

#include <stdbool.h>
#include <stdint.h>

/* How far ahead of the clock a requested fence may be: 5 minutes. */
#define FENCE_AHEAD_MAX_US (INT64_C(5) * 60 * 1000000)

/* No clock gets here in tens of thousands of years: any fence from the limit on is forged. */
#define FENCE_RAISE_LIMIT (INT64_C(1) << 61)

/* Two clocks, read at the same moment. */
typedef struct fence_time {
    int64_t wall_us; /* unix time; may be set back */
    int64_t boot_us; /* time since boot; only grows */
} fence_time;

/* Advances the counter. Returns the fence of a new grant: at_least (0: any) or higher. */
int64_t fence_next(fence_time now, int64_t at_least);

/* May a client ask for this fence? Not if it is more than FENCE_AHEAD_MAX_US ahead of the clock.
 * The clock is the wall clock or, after that was set back, its highest value so far plus the time
 * that has passed since then. It does not depend on earlier requests, so that clients cannot push
 * the counter ahead step by step. */
bool fence_may_ask_for(int64_t wanted, fence_time now);

/* A file or a master has used the fence: the next fence will be higher. */
void fence_raise(int64_t seen);

/* The server begins to give out fences: a file was loaded, or the server was promoted. If the
 * counter is ahead of the clock, the predecessor may have given out fences unknown to the server.
 * So the counter jumps over all fences the predecessor can have given out. */
void fence_resume(int64_t wall_us);

/* The highest fence given out or seen; 0 if there was none. */
int64_t fence_last(void);

#endif
