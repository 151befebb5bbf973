/* SPDX-License-Identifier: BSD-3-Clause */
/* hints.h - a held lock without a tie that somebody deletes, flushes, overwrites or evicts is lost
 * within a round trip, instead of at the next renewal: the server tells of changes (tracking.h).
 *
 * A hint is no proof. The lock is lost when an EXTEND says so. The watch begins HINTS_AFTER_MS
 * after the grant, so that locks that are held for a moment cost no command. All functions: locked
 * (loop.h). */
#pragma once
#include "deployment/tracking.h"
#include "lease/lease.h"

enum { HINTS_AFTER_MS = 20 };

/* One name of a lock. {0}: no hints are wanted. */
typedef struct hinted_name {
    lease *lease;
    tracked_name tracked;
} hinted_name;

/* The lock is held: lease_begin() was called. Does nothing if hints are wanted already. */
void hints_begin(hinted_name *hinted, tracking *tracking, lease *lease, const char *name,
                 const char *token);
void hints_end(hinted_name *hinted);
