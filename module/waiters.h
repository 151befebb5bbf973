/* SPDX-License-Identifier: BSD-3-Clause */
/* waiters.h - clients parked until a lock becomes free, first come, first served.
 *
 * Knows how to queue clients and how to answer them, not what owning a lock means: transition.c
 * asks for the first in the queue, makes it the holder, and lets it be answered. Main thread
 * only. */
#ifndef DLOCK_WAITERS_H
#define DLOCK_WAITERS_H

#include "lock_state.h"
#include "redismodule.h"

typedef struct waiter waiter;

/* What a waiter that did not get the lock in time is told: its fence, or 0 for null. */
typedef int64_t (*waiters_last_look_fn)(RedisModuleCtx *ctx, RedisModuleString *name,
                                        const lock_request *request);

void waiters_init(waiters_last_look_fn last_look);

/* Parks the calling client; its reply comes later. False: the queue is full, the error is sent. */
bool waiters_park_or_reply(RedisModuleCtx *ctx, RedisModuleString *name,
                           const lock_request *request);

/* The first in the queue for this name, or NULL. It stays there until it is answered. */
waiter *waiters_first(int db, const RedisModuleString *name);
const lock_request *waiter_request(const waiter *first);
uint64_t waiter_client(const waiter *first);

/* It holds the lock now: it leaves the queue and gets its fence. If its connection turns out to be
 * gone before the answer is on its way, the lock is taken back (deferred.h). */
void waiters_answer(waiter *first, int64_t fence);

/* All who wait for this name leave with this error. */
void waiters_send_away(int db, const RedisModuleString *name, const char *error);

/* Settle this name at that unix time, if somebody still waits for it then. */
void waiters_look_again(int db, const RedisModuleString *name, int64_t at_ms);

/* The holder with that fence has asked again: it lives, even if the connection it waited on does
 * not. */
void waiters_confirm(int64_t fence);

/* All locks of a database, or of all when it is negative, are gone without a word about each. */
void waiters_flush(int db);

/* The locks of two databases have changed places; their waiters have not. */
void waiters_swap(int db, int other_db);

int64_t waiters_count(int db, const RedisModuleString *name);
int64_t waiters_queue_count(void);
int64_t waiters_total(void);

#endif
