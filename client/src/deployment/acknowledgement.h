/* SPDX-License-Identifier: BSD-3-Clause */
/* acknowledgement.h - replicas acknowledge grants and extensions: one connection for each server,
 * however many locks wait for that.
 *
 * Redis's WAIT blocks its connection, and speaks of all that was written before on the same
 * connection. A lock is granted on another connection, so each lock is first written again by an
 * EXTEND, which never creates a lock, and tells whether this server still knows it. One WAIT behind
 * many EXTENDs serves all of them: a round. Locks that come during a round join the next one.
 *
 * All functions and callbacks: locked (loop.h). */
#pragma once
#include "deployment/deployment.h"

typedef enum ack_result {
    ACK_ENOUGH,      /* as many replicas as wanted have the lock */
    ACK_NOT_WRITTEN, /* the server refuses the EXTEND: the lock is lost, or has moved */
    ACK_TOO_FEW      /* too few replicas have the lock, or nobody knows */
} ack_result;

/* Memory of the caller's, {0} but for the first group; not moved until it is done or stopped. */
typedef struct acknowledgement {
    attempt *attempt;    /* granted or extended; its result is set before on_done */
    bool is_asking;      /* each EXTEND comes behind an ASKING */
    uint32_t timeout_ms; /* of the replicas */
    int64_t limit_us;
    void (*on_done)(struct acknowledgement *ack, ack_result result); /* from the loop */

    /* Private to acknowledgement.c. */
    server *server; /* NULL: neither waiting nor in a round */
    request written;
    loop_timer timer;
    list_node node;
} acknowledgement;

/* on_done follows. The caller has a share of the server until then, or until it stops. */
void acknowledgement_start(acknowledgement *ack, server *server);
/* on_done is not called any more. Does nothing if it was not started. */
void acknowledgement_stop(acknowledgement *ack);
