/* SPDX-License-Identifier: BSD-3-Clause */
/* transition.h - the one place where a lock changes hands: judge, store, replicate, answer.
 *
 * All take an entry opened with LOCK_WRITE, and change nothing when they say no. */
#ifndef DLOCK_TRANSITION_H
#define DLOCK_TRANSITION_H

#include "lock_store.h"

/* The fence under which request->token holds the lock now, or 0 when somebody else does. Never
 * overtakes a waiter. */
int64_t transition_acquire(lock_entry *entry, const lock_request *request);

/* After transition_acquire() said 0: let the client wait. Its reply, or an error, is taken care
 * of. */
void transition_wait_or_reply(lock_entry *entry, const lock_request *request);

/* True when token held the lock. It is free now, or the next waiter's. If token was waiting for the
 * lock instead, its wait ends. */
bool transition_release(lock_entry *entry, lock_token token);

/* True when request->token holds the lock, and keeps it for at least request->lease_ms. */
bool transition_extend(lock_entry *entry, const lock_request *request);

/* What the master, the AOF or a slot migration said: this is the state now, whatever was there. */
void transition_apply(lock_entry *entry, const lock_state *state);

/* Is the lock held although its lease has ended, on a server that decides about that? */
bool transition_is_over(const lock_entry *entry);

typedef enum transition_reason { LEASE_ENDED, HOLDER_GONE } transition_reason;

/* The hold in the entry ends. may_grant: the first waiter becomes the holder; else it goes on
 * waiting, and its queue is marked. */
void transition_end(lock_entry *entry, transition_reason reason, bool may_grant);

/* The lock is free: the first waiter becomes the holder. */
void transition_hand_over(lock_entry *entry);

/* Somebody waits for this lock, which is held: says when to look at it again. */
void transition_watch(lock_entry *entry);

#endif
