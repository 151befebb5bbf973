/* SPDX-License-Identifier: BSD-3-Clause */
/* session_waits.h - waits that hang on a session: ACQUIRE ... WAIT ... VIA. The place in the queue
 * is that of queues.h; the outcome is an event:
 *
 *   [number, "granted", key, token, fence, age]
 *   [number, "ended", key, token, why]
 *
 *   key   of a request for several names, the first of them: the request has one event
 *   age   ms from the grant to the arrival of the call that gets the event; 0 if it came before
 *   why   timeout, released, or an error that a client can act on */
#ifndef DLOCK_SESSION_WAITS_H
#define DLOCK_SESSION_WAITS_H

#include "lease_index.h"
#include "queues.h"
#include "session.h"

/* Puts the request, which names its session, into the queue of each name. older: the waiter with
 * the same token and names, which loses its places to the request; NULL: none. */
void session_waits_add(const wait_names *names, const lock_request *request, waiter *older);

/* The counterparts of the functions of blocked.h. The first two take the waiter out of its queues.
 */
void session_waits_grant(waiter *granted, int64_t fence);
void session_waits_end(waiter *ended, const char *why);
bool session_waits_is_permitted(waiter *waiting);

/* Another call, with the same token, has taken over the place of the waiter. No event. */
void session_waits_drop(waiter *dropped);

/* The session of the first waiter in line is away: the waiter keeps its place, but leaves the
 * line. */
void session_waits_pass_over(waiter *passed);

/* The session is away. First takes back the grants that were never written to a connection, one by
 * one (their holds go to ties_abandon()), then takes the waits out of their lines, one by one.
 * False: nothing is left to do. */
bool session_waits_step_aside(session *session);

/* The session is back: puts the next wait back in line. False: nothing is left to do. */
bool session_waits_step_back(session *session);

/* The session has ended: takes grants back as above, then frees its waits, one by one. False:
 * nothing is left to do. */
bool session_waits_clear(session *session);

int64_t session_waits_count(void);

#endif
