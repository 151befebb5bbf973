/* SPDX-License-Identifier: BSD-3-Clause */
/* chain.h - a call, and the handlers of a client that every call passes; see dlock_spi.h. A call
 * lives in the lock's handle, so nothing rests on the caller's stack, and the call can be suspended
 * between any two steps. */
#pragma once
#include "deployment/deployment.h"

/* In hotspot.c: a part in the local lock of a hot name. */
typedef struct local_place {
    list_node node;       /* in the local queue; in no list once the call holds the local lock */
    struct hot_name *hot; /* NULL: neither queued nor holder of a local lock */
    bool is_handed_on;    /* with the token of the thread before */
} local_place;

/* In waiting.c: the state of an acquire, release or extend. A guarded command has only attempts. */
typedef struct waiting_state {
    enum { WAITING_IDLE, WAITING_ATTEMPT, WAITING_PAUSE, WAITING_CONFIRM } phase;
    bool is_step_done;   /* the attempt or the pause is over */
    bool was_unanswered; /* an earlier attempt was sent and not answered */
    bool has_failed;     /* acquire: status and cause of the call are of the attempt before */
    int64_t begun_us;    /* acquire: begin of the attempt. release: begin of the call */
} waiting_state;

/* The part that handlers see, and the library's own part. Set by the API for every call: pub, loop,
 * is_canceled, slots, lease, is_gone; and min_replicas, replica_timeout_ms, session, mode and
 * max_holders of the attempt. */
typedef struct call {
    dlock_call pub; /* first: handlers have a pointer to it */
    loop *loop;
    waiter waiter;                    /* ready: chain_advance() again */
    atomic_bool *_Atomic is_canceled; /* NULL: the call cannot be canceled */
    attempt attempt;
    void **slots; /* of the lock: one for each handler */
    bool is_gone; /* release: the lock was lost before, so no other thread may go on with it */
    /* For the release: a guarded command was in doubt, and may still run while the token holds the
     * lock. */
    bool has_late_command;

    /* Private to chain.c. */
    bool is_under_way; /* from chain_begin() until the last handler is left */
    bool is_leaving;
    uint32_t position; /* the handler to enter next, or the last one that was left */

    /* In hotspot.c: the local lock that the handle holds, from a grant to the release; NULL: none,
     * or another thread has taken the local lock over. Changes locked. */
    struct hot_name *_Atomic held;
    const struct lease *lease; /* of the handle; NULL: not known */

    loop_timer timer; /* of the handler that has suspended the call: deadline or pause */
    local_place local;
    waiting_state waiting;
    void (*on_sent)(attempt *attempt); /* NULL, or of hotspot.c: a release is on its way. Locked */
} call;

static inline call *call_of(dlock_call *pub) {
    return (call *)pub;
}

static inline bool call_is_canceled(const call *call) {
    return loop_has_canceled(call->loop, atomic_load(&call->is_canceled));
}

/* A single try, without waiting. */
static inline bool call_is_only_try(const call *call) {
    return call->pub.deadline_us <= call->pub.started_us;
}

static inline void call_set_result(call *call, dlock_status status, const char *cause) {
    call->pub.status = status;
    dlock_call_explain(&call->pub, status == DLOCK_OK ? "" : cause);
}

/* An attempt or a pause of the call is over, so the call goes on. The on_done of attempts whose
 * arg is the call. Locked. */
void call_finish_step(attempt *attempt);

typedef struct chain {
    size_t count;
    dlock_handler handlers[];
} chain;

/* Room for this many handlers; to be freed. NULL: no memory. */
chain *chain_new(size_t capacity);

/* Puts the handler in its place by order, behind handlers of the same order. */
void chain_add(chain *chain, dlock_handler handler);

/* All: not locked, by one thread at a time.
 * begin     resets the state of all handlers for a new call
 * advance   goes as far as the call can go. True: the call is done, and call->pub.status is the
 *           answer. False: suspended; advance again once call->waiter is ready (or for nothing,
 *           which is harmless) */
void chain_begin(call *call);
bool chain_advance(const chain *chain, call *call);
/* After chain_begin(): advances, and waits in the loop while the call is suspended, until the call
 * is done. */
void chain_finish(const chain *chain, call *call);
/* After chain_begin(), and whenever loop_next_ready() has given the call's waiter: advances. False:
 * the call is suspended in the loop, and may go on in another thread at once, so the caller lets go
 * of it. */
bool chain_go_on(const chain *chain, call *call);
