/* SPDX-License-Identifier: BSD-3-Clause */
/* hints.h - a held lock that somebody deletes, flushes, overwrites or evicts is lost within a round
 * trip, instead of at the next renewal: the server tells of changes of the key (tracking.h).
 *
 * A hint is no proof. The lock is lost when an EXTEND says so, on the same connection. The first
 * read of the key comes HINTS_AFTER_MS after the grant, so that locks that are held for a moment
 * cost no command. All functions: locked (loop.h). */
#pragma once
#include "deployment/tracking.h"
#include "lease/lease.h"

enum { HINTS_AFTER_MS = 20 };

/* A lock, inside its handle. {0} but for the first group. */
typedef struct hinted_lock {
    lease *lease;
    const char *name, *token;

    /* Private to hints.c. */
    tracking *tracking; /* NULL: no hints are wanted now */
    tracked_name tracked;
    loop_timer timer; /* the first read */
    request proof;
} hinted_lock;

/* The lock is held: lease_begin() was called. Does nothing if hints are wanted already. */
void hints_begin(hinted_lock *hinted, tracking *tracking);
void hints_end(hinted_lock *hinted);
