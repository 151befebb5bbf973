/* SPDX-License-Identifier: BSD-3-Clause */
/* life.c - see life.h. */
#include "deployment/life.h"

static void tell_all(list *followers) {
    list_each(life_follower, each, followers, node)
        each->tell(each);
}

static void on_life_overdue(loop_timer *timer) {
    session_life *life = container_of(timer, session_life, timer);
    tell_all(&life->armed);
    tell_all(&life->unarmed);
}

/* The server replies after a third of the timeout at the latest, so the reply to the next heartbeat
 * is due after two thirds. It may be late by an I/O timeout, or by half of the rest. */
static void set_times(session_life *life, int64_t sent_us) {
    int64_t timeout_us = (int64_t)life->timeout_ms * 1000,
            now_us = loop_now_us(life->deployment->loop);
    int64_t end_us =
        validity_end_us(sent_us, life->timeout_ms) - validity_lead_us(life->timeout_ms);
    int64_t due_us = sent_us + timeout_us * 2 / 3;
    if (due_us < now_us) due_us = now_us;
    int64_t grace_us = (int64_t)life->deployment->io_timeout_ms * 1000;
    int64_t suspect_us = due_us + deadline_earlier(grace_us, (end_us - due_us) / 2);
    atomic_store(&life->renewed_us, sent_us);
    atomic_store(&life->suspect_us, suspect_us);
    atomic_store(&life->end_us, end_us);
    loop_set_timer(life->deployment->loop, &life->timer, suspect_us);
}

/* NULL: no memory. */
static session_life *find_unused(deployment *deployment) {
    session_life *life = deployment->lives;
    while (life != NULL && life->shares > 0)
        life = life->next;
    if (life != NULL || (life = calloc(1, sizeof(*life))) == NULL) return life;
    life->next = deployment->lives;
    deployment->lives = life;
    life->deployment = deployment;
    life->timer.on_due = on_life_overdue;
    list_init(&life->armed);
    list_init(&life->unarmed);
    return life;
}

session_life *life_begin(deployment *deployment, int64_t sent_us) {
    session_life *life = find_unused(deployment);
    if (life == NULL) return NULL;
    life->timeout_ms = deployment->session_ms;
    set_times(life, sent_us);
    return life_share(life);
}

bool life_renew(session_life *life, int64_t sent_us) {
    if (loop_now_us(life->deployment->loop) >= atomic_load(&life->end_us)) return false;
    set_times(life, sent_us);
    atomic_fetch_add(&life->deployment->renewed, life->lock_count);
    tell_all(&life->armed);
    return true;
}

session_life *life_share(session_life *life) {
    if (life != NULL) life->shares++;
    return life;
}

void life_free(session_life *life) {
    if (life == NULL || --life->shares > 0) return;
    loop_clear_timer(life->deployment->loop, &life->timer);
}

void life_follow(session_life *life, life_follower *follower, bool is_armed) {
    life_share(life)->lock_count++;
    list_append(is_armed ? &life->armed : &life->unarmed, &follower->node);
}

void life_leave(session_life *life, life_follower *follower) {
    list_remove(&follower->node);
    life->lock_count--;
    life_free(life);
}

void lives_free(session_life *first) {
    while (first != NULL) {
        session_life *next = first->next;
        free(first);
        first = next;
    }
}
