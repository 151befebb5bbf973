/* SPDX-License-Identifier: BSD-3-Clause */
/* routed.h - of routed*.c only: attempts that one server decides, chosen by a router (router.h).
 *
 *   routed.c        the course of an attempt: find, judge the replies, redirect, retry, give up
 *   routed_send.c   one request of an attempt: its commands, connection, time and replies */
#pragma once
#include "deployment/acknowledgement.h"
#include "deployment/presence.h"

typedef enum run_phase {
    RUN_IDLE,
    RUN_DISCOVERY, /* waits for the router to find a server */
    RUN_SESSION,   /* waits for the session of the server to be open */
    RUN_REQUEST,   /* waits for a reply */
    RUN_QUEUED,    /* waits in the queue of the lock: an event of the session tells the outcome */
    RUN_REPLICAS,  /* granted: waits for the acknowledgements of replicas */
    RUN_UNDO,      /* waits for the reply to a RELEASE */
    RUN_ENDING
} run_phase;

/* An attempt under way. */
typedef struct routed_run {
    request request;
    loop_task wait;   /* for a discovery */
    loop_timer timer; /* ends the phase */
    router *router;
    attempt *attempt;
    int64_t limit_us;    /* of the whole attempt */
    server *server;      /* a share: the last one that was chosen; NULL: none yet */
    acknowledgement ack; /* of RUN_REPLICAS */
    guest guest;         /* of a wait whose lock is not tied to the session */
    run_phase phase;
    uint8_t redirect_count;
    bool is_asking : 1;      /* after ASK */
    bool is_retry : 1;       /* a request failed: another server gets one more try */
    bool is_waiting : 1;     /* the request may wait inside the server */
    bool was_busy : 1;       /* a request that does not wait found the lock busy */
    bool is_queued : 1;      /* the reply to the request: the token waits */
    bool is_no_session : 1;  /* the server has forgotten the session */
    bool is_run_refused : 1; /* the server reserves no run of fences just now */
    bool is_session_new : 1; /* opened anew since the request was sent: the place may be lost */
    bool is_no_script : 1;   /* the server does not know the hash of a script */
    bool needs_script : 1;   /* the text of the script is sent */
    bool is_granted : 1;     /* granted, or may be, although the result is a failure */
} routed_run;

/* Will the lock have to be given back if the attempt is given up? */
static inline bool run_takes_lock(const routed_run *run) {
    return run->attempt->operation == DLOCK_ACQUIRING && !run->attempt->is_background;
}

/* The tie of the lock, if the attempt is about it; else NULL. An extension of a lock that lasts as
 * long as the session is an ACQUIRE with the same token: the lock has no lease to extend. */
static inline tie *run_tie(const routed_run *run) {
    tie *tie = run->attempt->terms.tie;
    bool is_acquire = run->attempt->operation == DLOCK_ACQUIRING;
    bool is_extend = run->attempt->operation == DLOCK_EXTENDING;
    return tie != NULL && (is_acquire || (is_extend && tie->is_endless)) ? tie : NULL;
}

static inline bool run_needs_replicas(const routed_run *run) {
    const attempt *attempt = run->attempt;
    return attempt->terms.min_replicas > 0 && attempt->operation != DLOCK_RELEASING;
}

/* In routed.c: of the guests of runs, and what the replies to EXTEND and WAIT mean. */
extern const guest_table run_guests;
void run_take_acknowledgement(acknowledgement *ack, const reply *reply, const char *cause);

/* Sends the request to run->server, and sets the timer; or first waits for the session there. The
 * reply sets the result of the attempt. False: no memory. */
bool run_send(routed_run *run);
/* The lock is granted: asks for the acknowledgements of replicas, and sets the timer. */
void run_await_replicas(routed_run *run);
/* A RELEASE, before the attempt ends. False: no memory. */
bool run_send_release(routed_run *run);
/* The run leaves the session: at its end, or because the next request goes elsewhere. The tie of a
 * lock that is held stays. */
void run_leave_session(routed_run *run);
