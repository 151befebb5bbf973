/* SPDX-License-Identifier: BSD-3-Clause */
/* renewal.c - see renewal.h.
 *
 *   schedule  a lock is due when lease.h says so, or after a pause if the last attempt failed
 *   wave      the timer starts an attempt for every lock that is due, and for locks that are due
 *             soon: their requests leave together, in a pipeline
 *   settle    extended: due again later. DLOCK_LOST: lost. Any other failure: due again after a
 *             pause, as long as the lock is not gone
 *   move      the connection of a session broke: the lock is in question. An ACQUIRE with the same
 *             token on a new connection tells: the same fence, and nobody else held the lock in
 *             between
 *
 * Invariants: a lock is in the heap, or blocked, or under way, or paused, or nothing is to come. A
 * lock that is cut off is not extended: an attempt under way is a move. Each extension with
 * replicas takes a connection, so only some may be under way, and further locks are blocked
 * meanwhile. */
#include "lease/renewal.h"

/* A lock joins a wave if it is due within this part of its time between two renewals. */
enum { JOIN_PARTS = 2, JOINERS_MAX = 1024, WITH_REPLICAS_MAX = 16 };
enum { PAUSE_FIRST_MS = 20, PAUSE_MAX_MS = 500, BREATH_US = 1000 };
enum { MOVE_LEASE_MS = 1 }; /* the server never makes a lease shorter */

static int64_t now_of(const renewal *renewal) {
    return loop_now_us(renewal->deployment->loop);
}

/* -- when */

static bool can_unblock(const renewal *renewal) {
    return renewal->with_replicas < WITH_REPLICAS_MAX && !list_is_empty(&renewal->blocked);
}

static void set_timer(renewal *renewal) {
    const heap_node *first = heap_first(&renewal->due), *set = &renewal->timer.node;
    int64_t due_us = first == NULL ? DEADLINE_NEVER : first->due_us;
    if (can_unblock(renewal)) due_us = 0;
    if (heap_has(set) && set->due_us == due_us) return;
    loop_set_timer(renewal->deployment->loop, &renewal->timer, due_us);
}

static void unschedule(kept_lock *kept) {
    heap_remove(&kept->renewal->due, &kept->node);
    list_remove(&kept->blocked_node);
}

static void schedule(kept_lock *kept, int64_t due_us) {
    if (kept->is_paused || due_us == DEADLINE_NEVER) return;
    heap_add(&kept->renewal->due, &kept->node, due_us);
    set_timer(kept->renewal);
}

static void schedule_next(kept_lock *kept) {
    int64_t now_us = now_of(kept->renewal), due_us = lease_renew_at_us(kept->lease);
    if (due_us < now_us + BREATH_US) due_us = now_us + BREATH_US; /* whatever a store replied */
    schedule(kept, kept->is_cut_off ? now_us : due_us);
}

static void schedule_retry(kept_lock *kept, dlock_status failure) {
    atomic_store(&kept->lease->why, (int)failure);
    kept->pause_ms = kept->pause_ms == 0 ? PAUSE_FIRST_MS : kept->pause_ms * 2;
    if (kept->pause_ms > PAUSE_MAX_MS) kept->pause_ms = PAUSE_MAX_MS;
    schedule(kept, deadline_after_ms(now_of(kept->renewal), kept->pause_ms));
}

/* Nothing is to come. */
static void lose(kept_lock *kept) {
    lease_lose(kept->lease, DLOCK_LOST);
    notifier_look(kept->watched);
}

/* -- the attempt */

/* The attempt is done or abandoned. */
static void restore_attempt(kept_lock *kept) {
    attempt *attempt = kept->attempt;
    if (!kept->is_cut_off && kept->min_replicas > 0) kept->renewal->with_replicas--;
    kept->is_under_way = false;
    attempt->is_background = false;
    attempt->fence = kept->fence;
    attempt->terms.min_replicas = kept->min_replicas;
    attempt->terms.replica_timeout_ms = kept->replica_timeout_ms;
}

static void abandon(kept_lock *kept) {
    if (!kept->is_under_way) return;
    deployment_abandon(kept->renewal->deployment, kept->attempt);
    restore_attempt(kept);
}

/* -- sessions */

/* The connection has ended: the server may have given the lock to somebody else by now. An
 * extension under way is abandoned, as the reply would say nothing about the session. */
static void cut_off(void *arg) {
    kept_lock *kept = arg;
    abandon(kept);
    unschedule(kept);
    kept->is_cut_off = true;
    kept->pause_ms = 0;
    lease_question(kept->lease, true);
    schedule_next(kept);
    notifier_look(kept->watched);
}

static void keep_listening_or_move(kept_lock *kept) {
    const session *session = kept->attempt->terms.session;
    if (session != NULL && (session->own == NULL || session->own->conn == NULL)) {
        cut_off(kept);
        return;
    }
    if (session != NULL) {
        session->own->on_broken = cut_off;
        session->own->arg = kept;
    }
    schedule_next(kept);
}

/* Nothing was granted, and nothing that is still on the way can tie the lock to a dead
 * connection. */
static bool is_harmless(const attempt *attempt) {
    if (attempt->may_hold) return false;
    return attempt->status == DLOCK_UNREACHABLE || attempt->status == DLOCK_NO_MEMORY ||
           (attempt->status == DLOCK_REFUSED && attempt->is_transient);
}

/* A late ACQUIRE in doubt would tie the lock to a connection that has ended, and so end the lock
 * after a second move: no second move then, the lock is lost. No withdrawal is needed: the lock
 * lasts as long as before for an owner who still has to stop, or for MOVE_LEASE_MS. */
static void settle_move(kept_lock *kept, uint64_t fence) {
    const attempt *attempt = kept->attempt;
    if (attempt->status == DLOCK_OK && fence == kept->fence) {
        kept->is_cut_off = false;
        kept->pause_ms = 0;
        atomic_store(&kept->lease->why, DLOCK_OK);
        lease_question(kept->lease, false);
        keep_listening_or_move(kept);
        return;
    }
    session_close(attempt->terms.session);
    if (attempt->status == DLOCK_OK)
        withdrawals_add(kept->renewal->deployment, attempt->name, attempt->token, MOVE_LEASE_MS);
    if (is_harmless(attempt))
        schedule_retry(kept, attempt->status);
    else
        lose(kept);
}

/* -- extensions and moves */

static void settle_extension(kept_lock *kept) {
    const attempt *attempt = kept->attempt;
    renewal *renewal = kept->renewal;
    if (attempt->status == DLOCK_LOST) {
        lose(kept);
    } else if (attempt->status != DLOCK_OK) {
        schedule_retry(kept, attempt->status);
    } else if (lease_extend(kept->lease, attempt->asked_us, attempt->lease_ms, now_of(renewal))) {
        atomic_fetch_add(&renewal->count, 1);
        kept->pause_ms = 0;
        schedule_next(kept);
    }
}

static void on_attempt_done(attempt *attempt) {
    kept_lock *kept = attempt->arg;
    uint64_t fence = attempt->fence;
    restore_attempt(kept);
    if (kept->is_cut_off)
        settle_move(kept, fence);
    else
        settle_extension(kept);
    set_timer(kept->renewal); /* an extension with replicas may have made room for another */
}

/* A move is an acquire without replicas: an acquire that too few acknowledge would be undone. */
static void start_attempt(kept_lock *kept, uint32_t lease_ms) {
    deployment *deployment = kept->renewal->deployment;
    attempt *attempt = kept->attempt;
    int64_t limit_ms = deployment_short_ms(deployment);
    bool is_move = kept->is_cut_off;
    attempt->operation = is_move ? DLOCK_ACQUIRING : DLOCK_EXTENDING;
    attempt->lease_ms = is_move ? MOVE_LEASE_MS : lease_ms;
    attempt->wait_until_us = 0;
    attempt->limit_us = deadline_after_ms(now_of(kept->renewal), limit_ms);
    attempt->is_background = true; /* the lock is held: nothing is withdrawn */
    attempt->on_sent = NULL;
    attempt->on_done = on_attempt_done;
    attempt->arg = kept;
    if (is_move) {
        session_close(attempt->terms.session);
        attempt->fence = 0;
        attempt->terms.min_replicas = 0;
    }
    if (attempt->terms.min_replicas > 0) kept->renewal->with_replicas++;
    if (attempt->terms.replica_timeout_ms > deployment->io_timeout_ms)
        attempt->terms.replica_timeout_ms =
            deployment->io_timeout_ms; /* blocked locks wait for this */
    kept->is_under_way = true;
    deployment_start(deployment, attempt);
}

/* -- a wave */

static bool can_join(const kept_lock *kept, int64_t now_us) {
    int64_t early_us = (int64_t)kept->lease->rule.renew_every_ms * 1000 / JOIN_PARTS;
    return !kept->is_cut_off && kept->pause_ms == 0 && kept->node.due_us <= now_us + early_us &&
           lease_renew_for_ms(kept->lease, now_us) > 0;
}

/* Nothing is to come if the lock is gone, or a renewal would gain too little. */
static void start(kept_lock *kept, int64_t now_us) {
    renewal *renewal = kept->renewal;
    uint32_t lease_ms = lease_renew_for_ms(kept->lease, now_us);
    bool needs_replicas = kept->min_replicas > 0 && !kept->is_cut_off;
    if (now_us >= lease_gone_at_us(kept->lease)) return;
    if (lease_ms == 0 && !kept->is_cut_off) return;
    if (needs_replicas && renewal->with_replicas == WITH_REPLICAS_MAX)
        list_append(&renewal->blocked, &kept->blocked_node);
    else
        start_attempt(kept, lease_ms);
}

static void on_due(loop_timer *timer) {
    renewal *renewal = container_of(timer, struct renewal, timer);
    int64_t now_us = now_of(renewal);
    size_t joiners = 0;
    heap_node *first;
    while (can_unblock(renewal)) {
        kept_lock *kept = container_of(list_first(&renewal->blocked), kept_lock, blocked_node);
        list_remove(&kept->blocked_node);
        start(kept, now_us);
    }
    while ((first = heap_first(&renewal->due)) != NULL) {
        kept_lock *kept = container_of(first, kept_lock, node);
        bool is_due = first->due_us <= now_us;
        if (!is_due && (joiners == JOINERS_MAX || !can_join(kept, now_us))) break;
        if (!is_due) joiners++;
        heap_remove(&renewal->due, first);
        start(kept, now_us);
    }
    set_timer(renewal);
}

/* -- public */

void renewal_init(renewal *renewal, deployment *deployment) {
    *renewal = (struct renewal){.deployment = deployment, .timer.on_due = on_due};
    list_init(&renewal->blocked);
}

void renewal_begin(renewal *renewal, kept_lock *kept) {
    const attempt *attempt = kept->attempt;
    kept->renewal = renewal;
    kept->pause_ms = 0;
    kept->fence = attempt->fence;
    kept->min_replicas = attempt->terms.min_replicas;
    kept->replica_timeout_ms = attempt->terms.replica_timeout_ms;
    keep_listening_or_move(kept);
}

void renewal_end(kept_lock *kept) {
    renewal *renewal = kept->renewal;
    if (renewal == NULL) return;
    session *session = kept->attempt->terms.session;
    bool was_moving = kept->is_cut_off && kept->is_under_way;
    unschedule(kept);
    abandon(kept);
    if (session != NULL && !was_moving) { /* else the deployment has dealt with the connection */
        if (kept->is_cut_off)
            session_close(session);
        else if (session->own != NULL)
            session->own->on_broken = NULL;
    }
    kept->is_cut_off = kept->is_paused = false;
    kept->renewal = NULL;
    set_timer(renewal);
}

bool renewal_pause(kept_lock *kept) {
    if (kept->renewal == NULL) return true;
    if (kept->is_cut_off) return false;
    unschedule(kept);
    abandon(kept);
    kept->is_paused = true;
    set_timer(kept->renewal);
    return true;
}

void renewal_resume(kept_lock *kept) {
    if (kept->renewal == NULL || !kept->is_paused) return;
    kept->is_paused = false;
    kept->pause_ms = 0;
    schedule_next(kept);
}
