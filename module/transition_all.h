/* SPDX-License-Identifier: BSD-3-Clause */
/* transition_all.h - several locks in one step: all or none, with one token and one fence.
 *
 * Afterwards each lock is like any other: it is released, extended and lost alone. */
#ifndef DLOCK_TRANSITION_ALL_H
#define DLOCK_TRANSITION_ALL_H

#include "transition.h"

/* Open keys, all different, in one database. */
typedef struct lock_set {
    RedisModuleCtx *ctx;
    RedisModuleString **argv; /* arguments of the running ACQUIREALL; else NULL */
    int argc;
    wait_names names;
    lock_entry entries[LOCK_NAMES_MAX];
} lock_set;

/* False: one of the keys has another type, and none was opened. The names are borrowed until the
 * set is closed. */
bool transition_all_open(lock_set *set, RedisModuleCtx *ctx, RedisModuleString **names, int count,
                         lock_access access);

/* Closes the keys and serves requests for several names that may be served now. The second form is
 * for a lock that was opened alone. Every step that can free a lock ends with one of them. */
void transition_all_close(lock_set *set);
void transition_close(lock_entry *entry);

/* The counterparts of the functions of transition.h. */
transition_answer transition_all_acquire(lock_set *set, const lock_request *request);
void transition_all_wait_or_reply(lock_set *set, const lock_request *request);
void transition_all_apply(lock_set *set, const lock_state *state);

/* Returns at how many locks token was a holder and is so no longer. If token was waiting for one of
 * the locks, the wait ends. */
int transition_all_release(lock_set *set, lock_token token);

/* Does the token hold all locks, or does it wait for each of them? */
bool transition_all_has(lock_set *set, lock_token token);

#endif
