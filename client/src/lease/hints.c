/* SPDX-License-Identifier: BSD-3-Clause */
/* hints.c - see hints.h. */
#include "lease/hints.h"

/* The reply to an EXTEND. A lock that is lost, and not given back yet, needs no more hints. */
static void on_hint_read(tracked_name *tracked, server *server, const reply *reply) {
    (void)server;
    hinted_name *hinted = container_of(tracked, hinted_name, tracked);
    verdict verdict;
    read_holder_reply(&verdict, reply);
    bool is_lost = verdict.status == DLOCK_LOST; /* else held, or not the word of the master */
    if (is_lost || lease_gone_at_us(hinted->lease) == LEASE_OVER) tracking_remove(tracked);
    if (is_lost) lease_lose(hinted->lease, DLOCK_LOST);
}

void hints_begin(hinted_name *hinted, tracking *tracking, lease *lease, const char *name,
                 const char *token) {
    if (tracking->router == NULL || hinted->lease != NULL) return;
    hinted->lease = lease;
    hinted->tracked = (tracked_name){.name = name, .token = token, .on_read = on_hint_read};
    loop_start_background(tracking->router->base.loop); /* best effort: else a renewal notices */
    tracking_add(tracking, &hinted->tracked, HINTS_AFTER_MS);
}

void hints_end(hinted_name *hinted) {
    tracking_remove(&hinted->tracked);
    hinted->lease = NULL;
}
