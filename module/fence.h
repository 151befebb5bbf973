/* SPDX-License-Identifier: BSD-3-Clause */
/* fence.h - the fences of the server, and the clock they are read from.
 *
 *   base    max(own wall clock, highest base heard of + time passed since then)
 *   clock   base + lead
 *   fence   max(clock, last fence + 1)
 *
 * The base is a hybrid logical clock: files, masters and other nodes of a cluster tell theirs, and
 * no client can change it. So servers that replace each other need no clocks that agree.
 *
 * The lead is how far fences run ahead of the base: because a client has asked for a higher fence,
 * or because the server has taken over. It becomes smaller by half of the time that passes: the
 * clock runs at half its speed until it is the base again. All who have heard of a clock with a
 * lead compute the same from it.
 *
 * A fence grows with every grant, whichever lock is granted, and needs no key in the database.
 * Pure; main thread only. */
#ifndef DLOCK_FENCE_H
#define DLOCK_FENCE_H

#include <stdbool.h>
#include <stdint.h>

/* No client can make a server lead by more: 5 minutes. */
#define FENCE_LEAD_MAX_US (INT64_C(5) * 60 * 1000000)
/* A promoted server leads by so much more: a second. See fence_take_over(). */
#define FENCE_TRANSIT_US (INT64_C(1) * 1000000)
/* The largest lead: 6 minutes. A clock that is further ahead takes its base along. */
#define FENCE_LEAD_LIMIT_US (INT64_C(6) * 60 * 1000000)
/* So many fences may be reserved by requests that wait: 10 seconds. When they are granted, other
 * requests may have used up FENCE_LEAD_MAX_US. */
#define FENCE_PENDING_MAX (INT64_C(10) * 1000000)

/* Two clocks, read at the same moment. */
typedef struct fence_time {
    int64_t wall_us; /* unix time; may be set back */
    int64_t boot_us; /* time since boot; only grows */
} fence_time;

/* The server has just started, and knows nothing. */
void fence_start(void);

/* Gives out a run of count fences, the first of which is at_least (0: any) or higher. Returns the
 * last fence of the run. */
int64_t fence_next(fence_time now, int64_t at_least, int64_t count);

/* Would a fence at this time set the clock, because the wall clock is ahead of it? Then both clocks
 * must have been read at the same moment: what passed between would be ahead for ever. */
bool fence_sets_clock(fence_time now);

/* May a client ask for this fence? Not if it is more than FENCE_LEAD_MAX_US ahead of the base. The
 * base does not depend on earlier requests, so clients cannot push fences ahead step by step. */
bool fence_may_ask_for(int64_t wanted, fence_time now);

/* May a client restore a lock that has this fence? A server that was just promoted gives out fences
 * that are a little further ahead, and its slots may move at once. After several promotions this
 * server has heard of their clock. */
bool fence_may_restore(int64_t fence, fence_time now);

/* May a client reserve a run of so many fences? Not if earlier runs have used up what the clock
 * allows. pending: the fences of all runs that wait for their locks. */
bool fence_may_reserve(int64_t at_least, int64_t count, int64_t pending, fence_time now);

/* A file, a master or a restored lock has the fence: the next fence will be higher. */
void fence_see(int64_t fence, fence_time now);

/* A file, a master or another node has this base, and this clock (0: unknown). */
void fence_hear(int64_t base_us, int64_t clock_us, fence_time now);

/* The server begins to give out fences: a file was loaded, or the server was promoted. Its
 * predecessor may have given out fences that it does not know, so its clock now leads by the
 * largest lead that the predecessor may have had: FENCE_LEAD_MAX_US, or the lead that was heard of
 * if that is larger. A replica heard of the base of its master late, so a promoted one leads by
 * FENCE_TRANSIT_US more. The base stays as it is. */
void fence_take_over(fence_time now, bool is_promoted);

int64_t fence_base(fence_time now);
int64_t fence_clock(fence_time now);

/* When the fence was given out, as unix time; at the latest now. */
int64_t fence_given_us(int64_t fence, fence_time now);

/* The highest fence given out or seen; 0 if there was none. */
int64_t fence_last(void);

/* Counts the steps of the clock: each time that the clock has gone ahead by more than the time that
 * passed, and not because of what was heard. What others were told before a step is too little. */
uint64_t fence_steps(void);

#endif
