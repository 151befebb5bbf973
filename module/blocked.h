/* SPDX-License-Identifier: BSD-3-Clause */
/* blocked.h - the clients of the waiters in queues.h: how a client is blocked, how it gets its
 * reply, and whether the reply has reached its connection.
 *
 * The rule: a grant counts as told when the reply is in the output buffer of a connection, and the
 * connection survives the current turn of the event loop. A grant that was certainly not told is
 * abandoned (sessions_abandon()). Main thread only. */
#ifndef DLOCK_BLOCKED_H
#define DLOCK_BLOCKED_H

#include "lease_index.h"
#include "queues.h"

void blocked_init(void);

/* Parks the calling client in the queue for the lock; the reply comes later. If the same token
 * already waits in the queue, on another connection, the new call takes over the place in the
 * queue, and the older call gets null. False: the queue is full, and the error is sent. */
bool blocked_park_or_reply(RedisModuleCtx *ctx, RedisModuleString *name,
                           const lock_request *request);

/* Each function takes the waiter out of its queue. The client gets the reply at the end of the
 * current turn of the event loop, or soon after: the fence of the hold; null; an error. */
void blocked_grant(waiter *granted, lease_ref hold, int64_t fence, int64_t lease_end_us);
void blocked_refuse(waiter *refused);
void blocked_send_away(waiter *sent, const char *error);

/* Are enough replies due for one turn of the event loop? */
bool blocked_has_enough(void);

/* The connection of the client has ended. */
void blocked_client_gone(RedisModuleCtx *ctx, uint64_t client);

/* Closes the connections of clients whose reply Redis has dropped. Stops following the event
 * loop when no client has waited for a while. */
void blocked_tidy(RedisModuleCtx *ctx);

#endif
