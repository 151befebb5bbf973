/* SPDX-License-Identifier: BSD-3-Clause */
/* fence.h - the server's one fence counter.
 *
 * A fence is max(last + 1, unix time in microseconds): it grows with every grant, whatever the
 * name, and needs no key of its own. Being no smaller than the time, it keeps growing after a
 * restart that forgot the last one; being no smaller than the last one, it keeps growing while
 * the clock steps back. Whoever learns of a fence (RDB, AOF, master) raises the counter with it.
 * Main thread only. */
#ifndef DLOCK_FENCE_H
#define DLOCK_FENCE_H

#include <stdint.h>

#define FENCE_RAISE_LIMIT (INT64_C(1) << 61)

/* The fence of a new grant; counts. */
int64_t fence_next(int64_t now_us);

/* A fence was seen elsewhere: the next one will be above it. One that no clock will reach in
 * tens of thousands of years is forged, and is not followed: our grants must stay below
 * LOCK_FENCE_LIMIT. */
void fence_raise(int64_t seen);

/* The highest fence given or seen; 0 when there was none. */
int64_t fence_last(void);

#endif
