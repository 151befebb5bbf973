/* SPDX-License-Identifier: BSD-3-Clause */
/* blocked.h - the clients behind the waiters of queues.h: how they are blocked, how they are
 * answered, and whether their answer has reached them.
 *
 * The rule: a grant counts as told once its reply is in the output buffer of a connection that
 * outlives the turn of the event loop. A grant that was certainly not told is given up
 * (sessions_abandon()). Main thread only. */
#ifndef DLOCK_BLOCKED_H
#define DLOCK_BLOCKED_H

#include "lease_index.h"
#include "queues.h"

void blocked_init(void);

/* Parks the calling client in the queue for this name; its reply comes later. If the same token
 * waits there already, on another connection, it keeps its place, and the older call is answered
 * with null. False: the queue is full, the error is sent. */
bool blocked_park_or_reply(RedisModuleCtx *ctx, RedisModuleString *name,
                           const lock_request *request);

/* These take the waiter out of its queue and answer its client at the end of this turn of the
 * event loop: with the fence of its hold; with null; with an error. */
void blocked_grant(waiter *granted, lease_ref hold, int64_t fence, int64_t lease_end_us);
void blocked_refuse(waiter *refused);
void blocked_send_away(waiter *sent, const char *error);

/* Are there as many answers to deliver as one turn of the event loop should have? */
bool blocked_has_enough(void);

/* This connection has ended. */
void blocked_client_gone(RedisModuleCtx *ctx, uint64_t client);

/* Closes the connections of clients whose answer Redis has dropped. */
void blocked_tidy(RedisModuleCtx *ctx);

#endif
