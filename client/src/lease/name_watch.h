/* SPDX-License-Identifier: BSD-3-Clause */
/* name_watch.h - reads a name, now and after each change: the session tells that a lock has changed
 * hands (DLOCK.WATCH, presence.h). Two users:
 *
 *   dlock_watch()          A read is a DLOCK.INFO, whose reply is for the program
 *   a lock without a tie   that somebody deletes, flushes, overwrites or evicts is lost within a
 *                          round trip, instead of at the next renewal. The event is only a hint, so
 *                          a read is an EXTEND for a moment: it never shortens a lease, takes the
 *                          same time however many share the lock, and proves a loss. It is sent
 *                          only after an event that names another holder, or none
 *
 * A restart, a failover or a moved slot makes the name be watched and read again. Where the ACL
 * allows no session, dlock_watch() reads every WATCH_POLL_MS, and a lock is not watched at all. All
 * functions: locked (loop.h). */
#pragma once
#include "deployment/presence.h"
#include "lease/lease.h"

/* The watch of a lock begins so long after the grant, so that locks that are held for a moment cost
 * no command. */
enum { WATCH_POLL_MS = 1000, LOCK_WATCH_AFTER_MS = 20 };

/* Memory of the caller's, {0} before the first use; not moved. */
typedef struct name_watch {
    const char *name; /* borrowed */
    /* For dlock_watch(); NULL for a lock. Gets the reply of the server to DLOCK.INFO, which is an
     * array; null if the lock is free; the error of reply_is_no_lock(). From the loop; may end this
     * watch, and no other. */
    void (*on_read)(struct name_watch *watch, server *server, const reply *info);
    /* The two of a lock; NULL for dlock_watch(). */
    lease *lease;
    const char *token; /* borrowed */

    /* Private to name_watch.c. */
    router *router; /* NULL: not watched */
    guest guest;
    request request;
    server *server;   /* a share, while a request is under way */
    bool is_watching; /* the request under way begins with DLOCK.WATCH */
    bool is_watched;  /* the session of the server knows of the watch */
    bool is_stale;    /* changed since the read under way was sent */
    loop_timer timer; /* the next try, or the next poll */
} name_watch;

/* Sets name and on_read. Does nothing if the name is watched, or if names of this deployment cannot
 * be (deployment_can_watch()). */
void name_watch_begin(name_watch *watch, deployment *deployment, const char *name,
                      void (*on_read)(name_watch *watch, server *server, const reply *info));
/* For one name of a lock that is held: lease_begin() was called. Likewise; and does nothing after a
 * loss, until name_watch_end(). */
void lock_watch_begin(name_watch *watch, deployment *deployment, lease *lease, const char *name,
                      const char *token);
/* Does nothing if the name is not watched. */
void name_watch_end(name_watch *watch);
