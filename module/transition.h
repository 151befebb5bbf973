/* SPDX-License-Identifier: BSD-3-Clause */
/* transition.h - the one place where a lock changes hands: judge, store, replicate, tell.
 *
 * Each takes an entry opened with LOCK_WRITE, and changes nothing when it says no. */
#ifndef DLOCK_TRANSITION_H
#define DLOCK_TRANSITION_H

#include "lock_store.h"

/* The fence under which request->token holds the lock now, or 0 when somebody else does. */
int64_t transition_acquire(lock_entry *entry, const lock_request *request);

/* True when it was held by token and is free now. */
bool transition_release(lock_entry *entry, lock_token token);

/* True when it is held by request->token and ends request->lease_ms from now. */
bool transition_extend(lock_entry *entry, const lock_request *request);

/* What the master, the AOF or a slot migration said: this is the state now, whatever was there. */
void transition_apply(lock_entry *entry, const lock_state *state);

#endif
