/* SPDX-License-Identifier: BSD-3-Clause */
/* deferred.h - work on a lock that may not be done where the need for it is noticed.
 *
 * Redis tells us that a key went away, or a client, in the midst of its own work. A write there
 * would reach the replicas before the change that caused it. So the name is noted, and settled from
 * a timer in the same turn of the event loop; later, if clients are paused or may not write; never,
 * if we became a replica.
 *
 * What settling means is transition.c's business: it registers itself here. */
#ifndef DLOCK_DEFERRED_H
#define DLOCK_DEFERRED_H

#include "redismodule.h"
#include <stdint.h>

/* ctx has the lock's database selected, and writes are allowed. */
typedef void (*deferred_fn)(RedisModuleCtx *ctx, RedisModuleString *name, int64_t fence);

int deferred_register(RedisModuleCtx *ctx, deferred_fn settle);

/* Settle this lock soon. fence: take it back from the holder with that fence; 0: nobody to take
 * it from. May be called from anywhere in the main thread. */
void deferred_settle_soon(int db, const RedisModuleString *name, int64_t fence);

/* The same at once, from the callback of a timer. */
void deferred_settle_now(RedisModuleCtx *ctx, int db, RedisModuleString *name);

/* The holder with that fence has shown itself: do not take the lock back from it. */
void deferred_cancel(int64_t fence);

/* If the server is about to sleep, it wakes up at once. */
void deferred_end_sleep(void);

/* A context that is always there. */
RedisModuleCtx *deferred_context(void);

/* A timer of the server; it may fire early when it is far away, so look at the clock and set it
 * again. Never stop the one whose callback is running. */
RedisModuleTimerID deferred_set_timer(int64_t after_ms, RedisModuleTimerProc callback, void *data);
void deferred_stop_timer(RedisModuleTimerID timer);

#endif
