/* SPDX-License-Identifier: BSD-3-Clause */
/* routed.h - of routed*.c only: attempts that one server decides, chosen by a router (router.h).
 *
 *   routed.c        the course of an attempt: find, judge the replies, redirect, retry, give up
 *   routed_send.c   one request of an attempt: its commands, connection, time and replies */
#pragma once
#include "deployment/router.h"

/* An attempt under way. */
typedef struct routed_run {
    request request;
    loop_task wait;   /* for a discovery */
    loop_timer timer; /* ends the phase */
    router *router;
    attempt *attempt;
    int64_t limit_us;    /* of the whole attempt */
    server *server;      /* a share: the last one that was chosen; NULL: none yet */
    own_connection *own; /* NULL: the command connection is used */
    enum { RUN_IDLE, RUN_DISCOVERY, RUN_REQUEST, RUN_UNDO, RUN_ENDING } phase;
    uint8_t redirect_count;
    bool is_asking : 1;    /* after ASK */
    bool is_retry : 1;     /* a request failed: another server gets one more try */
    bool is_parked : 1;    /* the request may wait inside the server */
    bool was_busy : 1;     /* a request that does not wait found the lock busy */
    bool is_no_script : 1; /* the server does not know the hash of a script */
    bool needs_script : 1; /* the text of the script is sent */
    bool is_granted : 1;   /* granted, or may be, although the result is a failure */
} routed_run;

/* Will the lock have to be given back if the attempt is given up? */
static inline bool run_takes_lock(const routed_run *run) {
    return run->attempt->operation == DLOCK_ACQUIRING && !run->attempt->is_background;
}

/* In routed.c: the server of a parked request gives no sign of life; arg: the run. */
void run_doubt(void *arg);

/* Sends the request to run->server, and sets the timer. The reply sets the result of the attempt.
 * False: no memory. */
bool run_send(routed_run *run);
/* Abandons the request. is_final: the token will not be used again, so a RELEASE follows on the
 * same connection. The result: was something sent, or may something have been sent? */
bool run_abandon_request(routed_run *run, bool is_final);
/* A RELEASE on the connection of the request that was just answered. False: there is none. */
bool run_send_release(routed_run *run);
/* No request is under way: gives the own connection back, since the next request goes elsewhere. */
void run_return_own(routed_run *run);
/* The same at the end of the attempt, whose status is known; keeps or closes the connection of a
 * session. */
void run_settle_own(routed_run *run);
