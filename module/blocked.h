/* SPDX-License-Identifier: BSD-3-Clause */
/* blocked.h - the clients of the waiters in queues.h: how a client is blocked, how it gets its
 * reply, and whether the reply has reached its connection.
 *
 * The rule: a grant counts as told when the reply is in the output buffer of a connection, and the
 * connection survives the current turn of the event loop. A grant that was certainly not told is
 * abandoned (ties_abandon()). Main thread only. */
#ifndef DLOCK_BLOCKED_H
#define DLOCK_BLOCKED_H

#include "lease_index.h"
#include "queues.h"

void blocked_init(void);

/* Do so many clients wait that others could not connect any more? */
bool blocked_is_full(void);

/* Parks the calling client in the queue of each name; the reply comes later. older: the waiter with
 * the same token and names, whose places the client takes over; NULL: none. False: the server does
 * not let this client wait, and the reply is null. */
bool blocked_park_or_reply(RedisModuleCtx *ctx, const wait_names *names,
                           const lock_request *request, waiter *older);

/* Another call has taken over the place of the waiter: its client gets null. */
void blocked_supersede(waiter *older);

/* May the user of the waiter still have the lock, by the ACL? */
bool blocked_is_permitted(waiter *waiting);

/* Each function takes the waiter out of its queues. The client gets the reply at the end of the
 * current turn of the event loop, or soon after: the fence of the holds, which are in its places;
 * null; an error. */
void blocked_grant(waiter *granted, int64_t fence, int64_t lease_end_us);
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
