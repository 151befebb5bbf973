/* SPDX-License-Identifier: BSD-3-Clause */
/* tracking.h - reads names by DLOCK.INFO, now and after each change (client-side caching of Redis).
 *
 *     reader       the command connection of the server of the name, in the mode CLIENT TRACKING:
 *                  the server remembers which names were read there
 *     subscriber   a second connection. When a name changes, the server sends the name here, and
 *                  forgets the reader: the name is read again
 *
 * A message is only a hint. Whoever tracks a name gets the reply of the server to DLOCK.INFO. A
 * lost connection, a failover or a moved slot makes all names of the server be read again. Where
 * the server or the ACL does not allow tracking, names are read every TRACKING_POLL_MS if polls are
 * wanted, else not at all. All functions: locked (loop.h). */
#pragma once
#include "deployment/router.h"

enum { TRACKING_POLL_MS = 1000, TRACKING_BUCKETS = 512 };

typedef struct tracking {
    router *router; /* NULL: names of this deployment cannot be tracked */
    list links;     /* tracked_server */
    list buckets[TRACKING_BUCKETS];
} tracking;

/* Memory of the caller's, {0} but for the first group; not moved. */
typedef struct tracked_name {
    const char *name; /* borrowed */
    /* The reply of the server to DLOCK.INFO: an array; null if the lock is free; the error of
     * reply_is_no_lock(). From the loop; may remove this name, and no other. What is sent to the
     * server from here goes behind the read, on the same connection. */
    void (*on_read)(struct tracked_name *tracked, server *server, const reply *info);
    bool is_polled; /* read every TRACKING_POLL_MS without tracking, and now and then with it */

    /* Private to tracking.c. */
    tracking *tracking; /* NULL: not tracked */
    struct tracked_server *link;
    list_node bucket_node, link_node;
    request request;
    int info_index;   /* of the reply to DLOCK.INFO, the last of the request */
    loop_timer timer; /* the next read without a hint */
    bool is_stale;    /* changed since the read under way was sent */
    bool is_replica;  /* the server has said so: its word does not count */
    int64_t read_us;  /* the last read */
    int quick_reads;  /* in a row, each less than two of the longest pauses after the one before */
} tracked_name;

void tracking_init(tracking *tracking, deployment *deployment);
/* No name is tracked. All zero is fine. */
void tracking_close(tracking *tracking);

/* Reads the name, later, and again after each change. Does nothing if the name is tracked, or
 * cannot be. */
void tracking_add(tracking *tracking, tracked_name *tracked);
/* Does nothing if the name is not tracked. */
void tracking_remove(tracked_name *tracked);
