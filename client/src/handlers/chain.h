/* SPDX-License-Identifier: BSD-3-Clause */
/* chain.h - a call, and the handlers of a client that every call passes; see dlock_spi.h. The state
 * of a call is in the handle of its lock, not on the stack of the caller: so the call can be
 * suspended between any two steps, and another thread can go on with it. */
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

/* pub is the part that handlers see. The API sets for every call: pub, loop, is_canceled, slots,
 * lease and was_lost; and of the attempt name, name_count, token and terms. */
typedef struct call {
    dlock_call pub; /* first: handlers have a pointer to it */
    loop *loop;
    waiter waiter;                    /* ready: chain_advance() again */
    atomic_bool *_Atomic is_canceled; /* NULL: the call cannot be canceled */
    attempt attempt;
    void **slots;  /* of the lock: one for each handler */
    bool was_lost; /* release: the lock was lost before, so it must not be handed on */
    /* For the release: a guarded command was in doubt, and may still run while the token holds the
     * lock. */
    bool has_late_command;

    /* Private to chain.c. */
    bool is_under_way; /* from chain_begin() until the last handler is left */
    bool is_leaving;
    uint32_t position; /* the handler to enter next, or the last one that was left */

    /* In hotspot.c: the local lock that the handle holds, from the grant to the release. NULL:
     * there is none, or another thread has taken it over. Changes locked. */
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

/* The on_done of the attempts of a call, whose arg is the call; also called when a pause is over.
 * The call can go on. Locked. */
void call_finish_step(attempt *attempt);

typedef struct chain {
    size_t count;
    dlock_handler handlers[];
} chain;

/* Room for this many handlers; to be freed. NULL: no memory. */
chain *chain_new(size_t capacity);

/* Puts the handler in its place by order, behind handlers of the same order. */
void chain_add(chain *chain, dlock_handler handler);

/* -- running a call. Not locked, by one thread at a time. */

/* Resets the state of all handlers for a new call. */
void chain_begin(call *call);
/* Enters and leaves handlers as far as possible. True: the call is done, and call->pub.status is
 * the answer. False: a handler has suspended the call; call this again once call->waiter is ready.
 * To call it too early is harmless. */
bool chain_advance(const chain *chain, call *call);
/* Advances until the call is done; while the call is suspended, the thread waits in the loop. */
void chain_finish(const chain *chain, call *call);
/* Advances, at first and whenever loop_next_ready() has given the waiter of the call. False: the
 * call is suspended in the loop, and another thread may already go on with it, so the caller must
 * not touch it. */
bool chain_go_on(const chain *chain, call *call);
