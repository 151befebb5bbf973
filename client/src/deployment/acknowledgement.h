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

/* Memory of the caller's, not moved until it is done or stopped. */
typedef struct acknowledgement {
    uint32_t min_replicas, timeout_ms;
    /* The round begins: sends an EXTEND on this connection. Must not stop anything. */
    void (*on_turn)(struct acknowledgement *ack, connection *conn);
    /* The reply to WAIT; NULL: there is none, and the cause says why. The replies to the EXTEND
     * have come before. From the loop. */
    void (*on_done)(struct acknowledgement *ack, const reply *reply, const char *cause);

    /* Private to acknowledgement.c. */
    list_node node;
} acknowledgement;

/* on_done follows. The caller has a share of the server until then, or until it stops. False: no
 * memory. */
bool acknowledgement_start(acknowledgement *ack, server *server);
/* on_done is not called any more. What on_turn has sent is the caller's to abandon. Does nothing if
 * it was not started. */
void acknowledgement_stop(acknowledgement *ack);
