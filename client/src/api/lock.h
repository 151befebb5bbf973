/* SPDX-License-Identifier: BSD-3-Clause */
/* lock.h - the handle of a lock: one claim on one name, or on several at once.
 *
 * Invariants: depth > 0 from an acquire that succeeded to the last release. Meanwhile the lease is
 * running, renewed if the options say so, and watched if the client has an on_event. The attempt of
 * the call belongs to the renewal while the lock is kept, else to the call. */
#pragma once
#include "api/client.h"

/* The part of a lock that is renewed, has a session, or whose loss is to be told. */
typedef struct kept_parts {
    tie tie; /* of each acquisition that is kept by the session */
    kept_lock kept;
    lease_links links;
    watched_lock watched;
    name_watch *watches; /* one for each name; NULL: none were wanted yet */
} kept_parts;

struct dlock_lock {
    dlock_client *client;
    char *owner; /* label inside the token, or NULL */
    call call; /* the one that goes on, if any. For good: its name, its lease, and the token of its
                * attempt; its cause is dlock_last_error() */

    /* The thread whose acquire is under way or was granted, by thread_number(); 0: none. */
    atomic_uint_least64_t taker;
    int depth;
    bool is_loss_seen : 1; /* a call of this acquisition has returned DLOCK_LOST */
    bool is_deepening : 1; /* extend: of an acquire of a lock that is held already */
    bool is_served : 1;    /* granted by the service, not by a handler: the service knows it */
    bool is_answered : 1;  /* the asynchronous call never was in the chain: a dispatch tells */
    bool is_cold : 1;      /* the call needs no local lock */
    bool is_ending : 1;    /* the handle is being freed */

    dlock_leg refused_by : 2; /* dlock_timings of the last acquire, these four */
    uint32_t attempts;
    int64_t local_us, remote_us;

    kept_parts *kept;        /* NULL: nothing of this is wanted */
    struct scopes *scopes;   /* of scope.c; NULL: the program has made the handle */
    struct guarded *guarded; /* of guarded.c; NULL: no guarded command is under way */
    dlock_done_fn done;      /* of the asynchronous call that goes on; NULL: none does */
    void *done_arg;

    void *slots[]; /* one for each handler of the program */
};

/* Does the lock end with the connection of the session? */
static inline bool lock_is_session(const dlock_lock *lock) {
    return lock->kept != NULL && lock->kept->tie.is_momentary;
}

/* Are the names in several slots of a cluster? */
bool lock_has_slots(const dlock_lock *lock);

/* The handlers of the call. */
static inline const chain *lock_chain(const dlock_lock *lock) {
    const dlock_client *client = lock->client;
    return lock->guarded != NULL ? client->guarded_chain
           : lock->is_cold       ? client->cold_chain
                                 : client->chain;
}

static inline int64_t lock_now_us(const dlock_lock *lock) {
    return loop_now_us(lock->client->loop);
}

/* Is the validity over, by the local clock? */
static inline bool lock_is_lost(const dlock_lock *lock) {
    return lease_state(&lock->call.lease, lock_now_us(lock)) == DLOCK_STATE_LOST;
}

/* -- the steps of a call, blocking or asynchronous. Not locked (loop.h).
 *
 *   begin    checks and prepares the call. False: answered is the result, and the call is over
 *   chain    chain_finish(), or chain_go_on() until the call is done
 *   settle   the answer of the chain becomes the state of the handle; the result is the
 *            program's */

/* A call as the program wants it. */
typedef struct call_plan {
    dlock_operation operation; /* 0: a guarded command, of these words and with this reply */
    const guarded_words *words;
    dlock_reply *reply;
    int64_t wait_ms;       /* of an acquire */
    uint32_t lease_ms;     /* of an acquire or extend; 0: the lock's own */
    dlock_status answered; /* set by lock_begin() if the call is over */
} call_plan;

/* DLOCK_INVALID: also while an asynchronous call is under way. */
bool lock_begin(dlock_lock *lock, call_plan *plan);
dlock_status lock_settle(dlock_lock *lock);

/* The call ends before the chain, and its status is the answer. Always false, as the result of
 * begin. */
bool lock_answer(dlock_lock *lock, call_plan *plan, dlock_status status, const char *error);

/* In guarded.c: the same steps for a guarded command. The words are copied; the reply must live
 * until the call is settled. */
bool guarded_begin(dlock_lock *lock, call_plan *plan);
dlock_handler guarded_handler(deployment *deployment); /* the only one of its chain */
dlock_status guarded_settle(dlock_lock *lock);

/* Why no acquire and no asynchronous call begins any more. */
#define LOCK_ENDS "the handle is being freed"

/* In async.c: a call that is under way ends, and its done() is called with DLOCK_CANCELED. */
void lock_stop_call(dlock_lock *lock);

/* -- the rest */

/* The result of a call, and the text of dlock_last_error(). Returns the status. */
dlock_status lock_finish(dlock_lock *lock, dlock_status status, const char *error);

/* The lock is held without a tie, and somebody is to be told of a loss. Locked. */
void lock_begin_watches(dlock_lock *lock);

/* NULL, or why the client has no lock with these options; text: room for the words. */
const char *lock_read_options(dlock_lock_options *options, const dlock_client *client,
                              const dlock_lock_options *given, char *text);
