/* SPDX-License-Identifier: BSD-3-Clause */
/* transition.h - the one place where a lock changes hands: judge, store, replicate, wake.
 *
 * The first four take an entry opened with LOCK_WRITE, and change nothing when they say no. */
#ifndef DLOCK_TRANSITION_H
#define DLOCK_TRANSITION_H

#include "lock_store.h"

int transition_register(RedisModuleCtx *ctx);

/* The fence under which request->token holds the lock now, or 0 when somebody else does. Never
 * overtakes a waiter. */
int64_t transition_acquire(lock_entry *entry, const lock_request *request);

/* After transition_acquire() said 0: let the client wait. Its reply, or an error, is taken care
 * of. */
void transition_wait_or_reply(lock_entry *entry, const lock_request *request);

/* True when it was held by token. It is free now, or the next waiter's. */
bool transition_release(lock_entry *entry, lock_token token);

/* True when it is held by request->token and ends request->lease_ms from now. */
bool transition_extend(lock_entry *entry, const lock_request *request);

/* What the master, the AOF or a slot migration said: this is the state now, whatever was there. */
void transition_apply(lock_entry *entry, const lock_state *state);

#endif
