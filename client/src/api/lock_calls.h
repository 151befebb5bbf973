/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_calls.h - the steps of a call of a handle, blocking or asynchronous.
 *
 *   begin    checks and prepares the call. False: answered is the result, and the call is over
 *   chain    chain_begin(); chain_finish(), or chain_go_on() until the call is done
 *   settle   the answer of the chain becomes the state of the handle; the result is the program's
 *
 * Not locked (loop.h). */
#pragma once
#include "api/lock.h"

/* A call as the program wants it. */
typedef struct call_plan {
    dlock_operation operation;
    int64_t wait_ms;       /* of an acquire */
    uint32_t lease_ms;     /* of an acquire or extend; 0: the lock's own */
    dlock_status answered; /* set by lock_begin() if the call is over */
} call_plan;

/* True: an asynchronous call is under way, so *answered is DLOCK_INVALID. */
bool lock_is_under_way(dlock_lock *lock, dlock_status *answered);

/* DLOCK_INVALID: also while an asynchronous call is under way. */
bool lock_begin(dlock_lock *lock, call_plan *plan);
dlock_status lock_settle(dlock_lock *lock);

/* Of async.c: a call that is under way ends, and its done() is called with DLOCK_CANCELED. */
void lock_stop_call(dlock_lock *lock);
