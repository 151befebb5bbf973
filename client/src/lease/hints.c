/* SPDX-License-Identifier: BSD-3-Clause */
/* hints.c - see hints.h.
 *
 *   timer   HINTS_AFTER_MS after the grant: the name is tracked from now on
 *   read    the token is among the holders: nothing to do. Else ask for a proof
 *   proof   EXTEND for a moment, which never shortens a lease: 0 says that nothing is held */
#include "lease/hints.h"

enum { PROOF_LEASE_MS = 1 };

static bool has_token(const reply *info, const char *token) {
    const reply *holders = inspection_holders(info), *holder = NULL;
    while (holders != NULL && (holder = reply_next(holders, holder)) != NULL) {
        const reply *value = reply_value(holder, "token");
        if (value != NULL && reply_is_text(value, token)) return true;
    }
    return false;
}

static void on_proof_reply(request *request, int index, const reply *reply) {
    (void)index;
    hinted_lock *hinted = container_of(request, hinted_lock, proof);
    verdict verdict;
    read_holder_reply(&verdict, reply);
    if (verdict.status != DLOCK_LOST) return; /* held, or not the word of the master */
    lease_lose(hinted->lease, DLOCK_LOST);
    tracking_remove(&hinted->tracked);
}

/* The renewal finds out about the lock of a session whose connection has ended. */
static void on_hint_read(tracked_name *tracked, server *server, const reply *info) {
    hinted_lock *hinted = container_of(tracked, hinted_lock, tracked);
    int64_t gone_us = lease_gone_at_us(hinted->lease);
    if (gone_us == LEASE_OVER) tracking_remove(tracked); /* lost, and not given back yet */
    bool is_open = gone_us > LEASE_OVER && !atomic_load(&hinted->lease->is_in_question);
    bool is_proving = hinted->proof.conn != NULL;
    if (!is_open || is_proving || has_token(info, hinted->token)) return;
    command extend = {0};
    lock_words words = {.operation = DLOCK_EXTENDING,
                        .name = hinted->name,
                        .token = hinted->token,
                        .lease_ms = PROOF_LEASE_MS};
    lock_command(&extend, &words);
    hinted->proof = (request){.on_reply = on_proof_reply};
    server_send(server, &extend, 1, &hinted->proof); /* no memory: the renewal finds out */
}

static void on_hint_due(loop_timer *timer) {
    hinted_lock *hinted = container_of(timer, hinted_lock, timer);
    hinted->tracked =
        (tracked_name){.name = hinted->name, .token = hinted->token, .on_read = on_hint_read};
    tracking_add(hinted->tracking, &hinted->tracked);
}

void hints_begin(hinted_lock *hinted, tracking *tracking) {
    if (tracking->router == NULL || hinted->tracking != NULL) return;
    loop *loop = tracking->router->base.loop;
    hinted->tracking = tracking;
    hinted->timer.on_due = on_hint_due;
    loop_start_background(loop); /* best effort: without hints the renewal notices a loss */
    loop_set_timer(loop, &hinted->timer, deadline_after_ms(loop_now_us(loop), HINTS_AFTER_MS));
}

void hints_end(hinted_lock *hinted) {
    if (hinted->tracking == NULL) return;
    loop_clear_timer(hinted->tracking->router->base.loop, &hinted->timer);
    tracking_remove(&hinted->tracked);
    connection_abandon(&hinted->proof);
    hinted->tracking = NULL;
}
