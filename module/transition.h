/* SPDX-License-Identifier: BSD-3-Clause */
/* transition.h - the only place where a lock changes hands: judge, store, replicate, reply.
 *
 * Every function that changes a lock needs an entry opened with LOCK_WRITE. A refused request
 * changes no lock. */
#ifndef DLOCK_TRANSITION_H
#define DLOCK_TRANSITION_H

#include "lock_store.h"

/* Returns the fence under which request->token now holds the lock, or 0 if another token holds it.
 * Never overtakes a waiter. */
int64_t transition_acquire(lock_entry *entry, const lock_request *request);

/* Lets the client wait after transition_acquire() has returned 0. Sends an error now, or takes
 * care of the later reply. */
void transition_wait_or_reply(lock_entry *entry, const lock_request *request);

/* True: token held the lock. The lock is now free, or belongs to the next waiter. If token was
 * waiting for the lock instead, the wait ends. */
bool transition_release(lock_entry *entry, lock_token token);

/* True: request->token holds the lock, for at least request->lease_ms from now on. */
bool transition_extend(lock_entry *entry, const lock_request *request);

/* Sets the state from the master, the AOF or a slot migration, and replaces any other value. */
void transition_apply(lock_entry *entry, const lock_state *state);

/* Is the lock held although its lease has ended? False where the server does not decide. */
bool transition_is_over(const lock_entry *entry);

typedef enum transition_reason { LEASE_ENDED, HOLDER_GONE } transition_reason;

/* Ends the hold in the entry. may_grant: the first waiter becomes the holder; else it goes on
 * waiting, and its queue is marked. */
void transition_end(lock_entry *entry, transition_reason reason, bool may_grant);

/* The lock is free: the first waiter becomes the holder. */
void transition_hand_over(lock_entry *entry);

/* If the lock is held and clients wait for it: sets when to look at it again. */
void transition_watch(lock_entry *entry);

#endif
