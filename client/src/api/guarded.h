/* SPDX-License-Identifier: BSD-3-Clause */
/* guarded.h - a command that runs only while the lock is held: one request and its result. */
#pragma once
#include "api/lock.h"

typedef struct guarded {
    attempt attempt;
    dlock_lock *lock;
    waiter *waiter;
    bool is_done; /* locked */
    char token[DLOCK_TOKEN_SIZE];
    guarded_words words; /* in the memory below */
    const char *memory[];
} guarded;

/* Checks the arguments and copies the words; *reply must live until the request is settled. Any
 * status but DLOCK_OK is the result of the call, and there is nothing to settle. Not locked. */
dlock_status guarded_new(guarded **out, dlock_lock *lock, const guarded_words *given,
                         dlock_reply *reply);
/* Once the request is done, the waiter is ready. To give the request up: deployment_abandon().
 * Locked. */
void guarded_start(guarded *guarded, waiter *waiter);
/* Once done, or after the request was given up: the result of the call. Frees the request. Not
 * locked. */
dlock_status guarded_settle(guarded *guarded);
