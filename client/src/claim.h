/* SPDX-License-Identifier: BSD-3-Clause */
/* claim.h - a call as the library sees it: what handlers see, and what is none of their
 * business. */
#ifndef DLOCK_CLAIM_H
#define DLOCK_CLAIM_H

#include "dlock_spi.h"
#include "interrupt.h"

struct server;
struct conn;

/* The connection that a session lock hangs on, of the backend: of one acquire after the other. */
typedef struct claim_link {
    struct server *to;
    struct conn *conn; /* NULL: none */
} claim_link;

typedef struct claim {
    dlock_call call; /* must be the first: handlers have a pointer to it */
    interrupt stop;
    uint32_t min_replicas; /* that must acknowledge a grant or an extension, in this time */
    uint32_t replica_timeout_ms;
    claim_link *link; /* NULL: not a session */
    bool is_doubtful; /* of a release: what is left of the lease is not certain */
    /* A release or extend: called once the service was told, before it has answered; or NULL. */
    void (*on_sent)(void *arg);
    void *on_sent_arg;
    bool is_passing;      /* of a failure: another attempt may succeed */
    bool is_sent;         /* a server was told and did not answer: it may hold the lock */
    bool is_given_up;     /* its token is being withdrawn, and must not be asked for again */
    bool is_token_chosen; /* by the caller, who may use it again: it must not be withdrawn later */
} claim;

#endif
