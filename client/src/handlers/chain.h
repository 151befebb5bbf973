/* SPDX-License-Identifier: BSD-3-Clause */
/* chain.h - a call, and the handlers of a client that every call passes; see dlock_spi.h. The state
 * of a call is in the handle of its lock, not on the stack of the caller: so the call can be
 * suspended between any two steps, and another thread can go on with it. */
#pragma once
#include "deployment/deployment.h"
#include "lease/lease.h"

/* In hotspot.c: a part in the local lock of a hot name. */
typedef struct local_place {
    list_node node;       /* in the local queue; in no list once the call holds the local lock */
    struct hot_name *hot; /* NULL: neither queued nor holder of a local lock */
} local_place;

/* In waiting.c: the state of an acquire, release or extend. A guarded command has only attempts. */
typedef struct waiting_state {
    enum { WAITING_IDLE, WAITING_ATTEMPT, WAITING_PAUSE, WAITING_CONFIRM } phase;
    bool is_step_done;   /* the attempt or the pause is over */
    bool was_unanswered; /* an earlier attempt was sent and not answered */
    bool has_failed;     /* acquire, extend: the call has the status of an attempt that failed */
    bool is_troubled;    /* acquire: pauses after a failure */
    int64_t begun_us;    /* acquire: begin of the attempt. Else: begin of the call */
} waiting_state;

/* Can the call be ended before its time? */
typedef enum call_stop {
    CALL_GOES_ON,    /* no */
    CALL_CANCELABLE, /* by its cancel, and by a cancel of the whole client */
    CALL_STOPPED     /* is to end now: the handle is freed, for instance */
} call_stop;

/* pub is the part that handlers see. The API sets for every call: pub, stop and was_lost, and
 * notes the cancels so far; once for all calls of a handle: loop, slots, the rule of the lease,
 * and of the attempt name, name_count, token and terms. */
typedef struct call {
    dlock_call pub; /* first: handlers have a pointer to it */
    loop *loop;
    waiter waiter; /* ready: chain_advance() again */
    attempt attempt;
    lease lease;          /* of the handle: how long the lock is certainly held */
    void **slots;         /* of the handle: one for each handler of the program */
    atomic_uchar stop;    /* a call_stop */
    cancel_switch cancel; /* of this call and later ones, until the program lifts it */
    bool is_handed_on;    /* in hotspot.c: with the token of the thread before */
    bool was_lost : 1;    /* release: the lock was lost before, so it must not be handed on */
    /* For the release: a guarded command was in doubt, and may still run while the token holds the
     * lock. */
    bool has_late_command : 1;

    /* Private to chain.c. */
    bool is_under_way : 1; /* from chain_begin() until the last handler is left */
    bool is_leaving : 1;
    uint32_t position; /* the handler to enter next, or the last one that was left */

    /* In hotspot.c: the local lock that the handle holds, from the grant to the release. NULL:
     * there is none, or another thread has taken it over. Changes locked. */
    struct hot_name *_Atomic held;

    loop_timer timer; /* of the handler that has suspended the call: deadline or pause */
    local_place local;
    waiting_state waiting;
} call;

static inline call *call_of(dlock_call *pub) {
    return (call *)pub;
}

static inline bool call_is_canceled(const call *call) {
    unsigned char stop = atomic_load(&call->stop);
    if (stop == CALL_CANCELABLE) return loop_has_canceled(call->loop, &call->waiter, &call->cancel);
    return stop == CALL_STOPPED;
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

#define NO_SLOT SIZE_MAX

typedef struct chain_link {
    dlock_handler handler;
    size_t slot; /* its number; NO_SLOT: a part of the library has its state in the call */
} chain_link;

typedef struct chain {
    size_t count, slot_count;
    chain_link links[];
} chain;

/* Room for this many handlers; to be freed. NULL: no memory. */
chain *chain_new(size_t capacity);

/* Puts the handler in its place by order, behind handlers of the same order. has_slot: the handler
 * of a program, which has a pointer of its own in each lock. */
void chain_add(chain *chain, dlock_handler handler, bool has_slot);

/* -- running a call. Not locked, by one thread at a time. */

/* Resets the state of all handlers for a new call. Leaves the attempt alone: during a guarded
 * command it is that of the renewal. */
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
