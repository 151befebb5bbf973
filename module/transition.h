/* SPDX-License-Identifier: BSD-3-Clause */
/* transition.h - the only place where a lock changes hands: judge, store, replicate, reply.
 *
 * Every function that changes a lock needs an entry opened with LOCK_WRITE. A refused request
 * changes no lock. */
#ifndef DLOCK_TRANSITION_H
#define DLOCK_TRANSITION_H

#include "lock_store.h"

typedef enum transition_answer {
    TRANSITION_HELD,       /* request->token holds the lock, under lock_first_fence() */
    TRANSITION_BUSY,       /* other tokens hold the lock, or wait for it */
    TRANSITION_OTHER_MODE, /* request->token holds the lock in the other mode */
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
 * other shared holders; else the holder replaces any other value. */
void transition_apply(lock_entry *entry, const lock_state *state);

/* Has the lease of the holder in the entry ended? False where the server does not decide. */
bool transition_is_over(const lock_entry *entry);

typedef enum transition_reason { LEASE_ENDED, HOLDER_GONE } transition_reason;

/* Ends the hold in the entry. may_grant: waiters for which there is room get the lock; else they
 * go on waiting, and their queue is marked. */
void transition_end(lock_entry *entry, transition_reason reason, bool may_grant);

/* Tells waiters in front of the line that their wait is over, or that their permission was
 * withdrawn, and passes over those whose session is away. The queue may be gone afterwards. */
void transition_tidy_queue(lock_entry *entry);

/* Could the first waiter get the lock, if holders whose lease has ended are removed? After
 * transition_tidy_queue(). */
bool transition_can_serve(const lock_entry *entry);

/* Removes the holders whose lease has ended, and gives the lock to the waiters for which there is
 * room. */
void transition_serve(lock_entry *entry);

/* If the lock is held and clients wait for it: sets when to look at it again. */
void transition_watch(lock_entry *entry);

#endif
