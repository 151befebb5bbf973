/* SPDX-License-Identifier: BSD-3-Clause */
/* transition.h - the only place where a lock changes hands: judge, store, replicate, reply.
 *
 * Every function that changes a lock needs an entry opened with LOCK_WRITE. A refused request
 * changes no lock. */
#ifndef DLOCK_TRANSITION_H
#define DLOCK_TRANSITION_H

#include "lock_store.h"
#include "queues.h"

typedef enum transition_answer {
    TRANSITION_HELD,       /* request->token holds the lock, under lock_first_fence() */
    TRANSITION_BUSY,       /* other tokens hold the lock, or wait for it */
    TRANSITION_OTHER_MODE, /* request->token holds the lock in the other mode */
    TRANSITION_PART,       /* as TRANSITION_BUSY, but the token holds some of several locks */
    TRANSITION_KEPT,       /* request->token holds the lock as long as its session lasts */
} transition_answer;

/* Never overtakes a waiter. */
transition_answer transition_acquire(lock_entry *entry, const lock_request *request);

/* Ends the holds whose lease is over, and gives the lock to the waiters for which there is room. */
void transition_settle(lock_entry *entry);

/* Does the token hold the lock, or wait for it? After transition_settle(). */
bool transition_has(lock_entry *entry, lock_token token);

/* Lets the client wait after transition_acquire() has found the lock busy. Sends an error now, or
 * takes care of the later reply. */
void transition_wait_or_reply(lock_entry *entry, const lock_request *request);

/* True: token held the lock and does so no longer. Waiters for which there is room now hold the
 * lock. If token was waiting for the lock instead, the wait ends. */
bool transition_release(lock_entry *entry, lock_token token);

/* TRANSITION_HELD: request->token holds the lock, for at least request->lease_ms from now on.
 * TRANSITION_BUSY: it does not hold the lock. TRANSITION_KEPT: a hold without a lease of its own,
 * and nothing was changed. */
transition_answer transition_extend(lock_entry *entry, const lock_request *request);

/* Sets the state of a holder from the master, the AOF or a slot migration. A shared holder joins
 * other shared holders; else the holder replaces any other value. The caller replicates it. */
void transition_apply(lock_entry *entry, const lock_state *state);

/* Has the lease of the holder in the entry ended? False where the server does not decide. */
bool transition_is_over(const lock_entry *entry);

typedef enum transition_reason { LEASE_ENDED, HOLDER_GONE } transition_reason;

/* Ends the hold in the entry. may_grant: waiters for which there is room get the lock; else they
 * go on waiting, and their queue is marked. */
void transition_end(lock_entry *entry, transition_reason reason, bool may_grant);

/* The waiter that is next to get the lock, or NULL. Waiters in front of it whose wait is over, or
 * whose permission was withdrawn, are told so; those whose session is away leave the line. The
 * queue may be gone afterwards. */
waiter *transition_next_waiter(lock_entry *entry);

/* Could the first waiter get the lock, if holders whose lease has ended are removed? After
 * transition_next_waiter(). */
bool transition_can_serve(const lock_entry *entry);

/* Removes the holders whose lease has ended, and gives the lock to the waiters for which there is
 * room. */
void transition_serve(lock_entry *entry);

/* If the lock is held and clients wait for it: sets when to look at it again. */
void transition_watch(lock_entry *entry);

/* -- steps for one of several locks; transition_all.c has the whole */

/* Ends what is over, serves the waiters, and judges the request by this lock alone. The entry has
 * the holder with the token of the request, if there is one. */
lock_verdict transition_judge(lock_entry *entry, const lock_request *request);

/* Makes the request a holder, with the given fence. transition_grant_part() does not replicate it;
 * transition_grant_again() is for a request whose token is the holder in the entry, which gets a
 * new fence if it has another one. */
void transition_grant_part(lock_entry *entry, const lock_request *request, uint64_t client,
                           int64_t fence, const char *event);
void transition_grant_again(lock_entry *entry, const lock_request *request, uint64_t client,
                            int64_t fence);

/* Does the request ask for another fence than the holder in the entry has? */
bool transition_needs_fence(const lock_entry *entry, const lock_request *request);

/* May the request share the lock with its holders? */
bool transition_has_room(const lock_entry *entry, const lock_request *request);

/* As transition_release(), but neither replicated nor handed on. */
bool transition_release_part(lock_entry *entry, lock_token token);

/* Gives the lock to the waiters for which there is room, after the holders have changed. */
void transition_serve_next(lock_entry *entry);

/* The waiter with the token, or NULL. */
waiter *transition_find_waiter(const lock_entry *entry, lock_token token);

/* Another request of the token has got the lock, or stands in the queue instead: its wait, if there
 * is one, ends without a word. */
void transition_end_own_wait(const lock_entry *entry, lock_token token);

/* Is there a place in the queue for a request that needs so many places in all? */
bool transition_has_place_or_reply(const lock_entry *entry, const lock_request *request,
                                   int places);

/* Lets the client wait in the queues of the names. older: the waiter with the same token and names,
 * or NULL. Replies now, or later. False: the server does not let this client wait. */
bool transition_park_or_reply(RedisModuleCtx *ctx, const wait_names *names,
                              const lock_request *request, waiter *older);

/* As transition_watch(), unless it is set already when to look at the lock. */
void transition_watch_new(lock_entry *entry);

#endif
