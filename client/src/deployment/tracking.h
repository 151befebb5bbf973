/* SPDX-License-Identifier: BSD-3-Clause */
/* tracking.h - reads names, now and after each change: the session tells that a lock has changed
 * hands (DLOCK.WATCH, presence.h).
 *
 * An event is only a hint. A read is a DLOCK.INFO. For the holder of the lock, a read is an EXTEND
 * for a moment, which never shortens a lease, takes the same time however many share the lock, and
 * proves a loss; it is sent only after an event that names another holder, or none. A restart, a
 * failover or a moved slot makes the name be watched and read again. Where the ACL
 * allows no session, names are read every TRACKING_POLL_MS if polls are wanted, else not at all.
 * All functions: locked (loop.h). */
#pragma once
#include "deployment/presence.h"

enum { TRACKING_POLL_MS = 1000 };

typedef struct tracking {
    router *router; /* NULL: names of this deployment cannot be tracked */
} tracking;

/* Memory of the caller's, {0} but for the first group; not moved. */
typedef struct tracked_name {
    const char *name;  /* borrowed */
    const char *token; /* NULL, or, borrowed: the token of the holder that tracks the lock */
    /* The reply of the server to DLOCK.INFO: an array; null if the lock is free; the error of
     * reply_is_no_lock(). With a token, the reply to EXTEND. From the loop; may remove this name,
     * and no other. */
    void (*on_read)(struct tracked_name *tracked, server *server, const reply *info);
    bool is_polled; /* read every TRACKING_POLL_MS where there is no session */

    /* Private to tracking.c. */
    tracking *tracking; /* NULL: not tracked */
    guest guest;
    request request;
    server *server;   /* a share, while a request is under way */
    bool is_watching; /* the request under way begins with DLOCK.WATCH */
    bool is_watched;  /* the session of the server knows of the watch */
    bool is_stale;    /* changed since the read under way was sent */
    loop_timer timer; /* the next try, or the next poll */
} tracked_name;

void tracking_init(tracking *tracking, deployment *deployment);

/* Reads the name after the delay, and again after each change. Does nothing if the name is tracked,
 * or cannot be. */
void tracking_add(tracking *tracking, tracked_name *tracked, int64_t delay_ms);
/* Does nothing if the name is not tracked. */
void tracking_remove(tracked_name *tracked);
