/* SPDX-License-Identifier: BSD-3-Clause */
/* renewal.c - see renewal.h.
 *
 *   schedule  a lock is due when lease.h says so, or after a pause if the last attempt failed
 *   wave      the timer starts an attempt for every lock that is due, and for locks that are due
 *             soon: their requests leave together, in a pipeline
 *   settle    extended: due again later. DLOCK_LOST: lost. Any other failure: due again after a
 *             pause, as long as the lock is not gone
 *   tie       the server may have forgotten that the lock is tied to the session: a restart, a
 *             failover, a slot that moved, or a lock that ends with the connection. An ACQUIRE with
 *             the same token ties it again. If the reply is the same fence, nobody else held the
 *             lock in between
 *
 * Invariants: a lock is in the heap, or under way, or paused, or nothing is to come. A lock that is
 * untied is not extended: an attempt under way ties it. */
#include "lease/renewal.h"

/* A lock joins a wave if it is due within this part of its time between two renewals. */
enum { JOIN_PARTS = 2, JOINERS_MAX = 1024 };
enum { PAUSE_FIRST_MS = 20, PAUSE_MAX_MS = 500, BREATH_US = 1000 };

static int64_t renewal_now_us(const renewal *renewal) {
    return loop_now_us(renewal->deployment->loop);
}

/* -- when */

static void set_renewal_timer(renewal *renewal) {
    const heap_node *first = heap_first(&renewal->due), *set = &renewal->timer.node;
    int64_t due_us = first == NULL ? DEADLINE_NEVER : first->due_us;
    if (heap_has(set) && set->due_us == due_us) return;
    loop_set_timer(renewal->deployment->loop, &renewal->timer, due_us);
}

static void unschedule(kept_lock *kept) {
    heap_remove(&kept->renewal->due, &kept->node);
}

static void schedule_at(kept_lock *kept, int64_t due_us) {
    if (kept->is_paused || due_us == DEADLINE_NEVER) return;
    heap_add(&kept->renewal->due, &kept->node, due_us);
    set_renewal_timer(kept->renewal);
}

static void schedule_next(kept_lock *kept) {
    int64_t now_us = renewal_now_us(kept->renewal), due_us = lease_renew_at_us(kept->lease);
    if (due_us < now_us + BREATH_US) due_us = now_us + BREATH_US; /* whatever a store replied */
    schedule_at(kept, kept->is_untied ? now_us : due_us);
}

static void schedule_retry(kept_lock *kept, dlock_status failure) {
    atomic_store(&kept->lease->why, (int)failure);
    kept->pause_ms = kept->pause_ms == 0 ? PAUSE_FIRST_MS : kept->pause_ms * 2;
    if (kept->pause_ms > PAUSE_MAX_MS) kept->pause_ms = PAUSE_MAX_MS;
    schedule_at(kept, deadline_after_ms(renewal_now_us(kept->renewal), kept->pause_ms));
}

/* -- the attempt */

/* The attempt is done or abandoned. */
static void restore_attempt(kept_lock *kept) {
    kept->is_under_way = false;
    kept->attempt->is_background = false;
}

static void abandon_attempt(kept_lock *kept) {
    if (!kept->is_under_way) return;
    deployment_abandon(kept->renewal->deployment, kept->attempt);
    restore_attempt(kept);
}

/* -- ties */

/* Heartbeats prove nothing any more. An extension under way is abandoned, as its reply would say
 * nothing about the tie. */
static void untie(kept_lock *kept) {
    abandon_attempt(kept);
    unschedule(kept);
    kept->is_untied = true;
    lease_unfollow(kept->lease, renewal_now_us(kept->renewal));
}

static void tie_again(kept_lock *kept) {
    if (kept->is_untied && kept->is_under_way) return;
    untie(kept);
    kept->pause_ms = 0;
    schedule_next(kept);
}

static void on_tie_open(guest *guest, bool is_new) {
    kept_lock *kept = guest->arg;
    if (is_new || kept->is_untied)
        tie_again(kept);
    else
        atomic_store(&kept->lease->why, DLOCK_OK);
}

/* The key has moved to another node with its slot, and is held there still. */
static void on_tie_event(guest *guest, const session_event *event) {
    kept_lock *kept = guest->arg;
    if (event->kind != EVENT_LOST) return;
    if (reply_is_text(event->why, "moved"))
        tie_again(kept);
    else
        lease_lose(kept->lease, DLOCK_LOST);
}

/* The presence goes on trying. */
static void on_tie_unopened(guest *guest, dlock_status status, const char *cause) {
    kept_lock *kept = guest->arg;
    (void)cause;
    if (status != DLOCK_UNREACHABLE) atomic_store(&kept->lease->why, (int)status);
}

/* A lock that ends with the connection may end once its guest leaves the session. */
static void on_tie_moved(guest *guest) {
    kept_lock *kept = guest->arg;
    tie_again(kept);
    if (kept->attempt->terms.tie->is_momentary) lease_question(kept->lease, true);
}

/* The server may have given a lock that ends with the connection to somebody else by now. */
static void on_tie_away(guest *guest) {
    kept_lock *kept = guest->arg;
    if (!kept->attempt->terms.tie->is_momentary) return;
    untie(kept);
    lease_question(kept->lease, true);
}

static const guest_table kept_guests = {.on_open = on_tie_open,
                                        .on_event = on_tie_event,
                                        .on_unopened = on_tie_unopened,
                                        .on_moved = on_tie_moved,
                                        .on_away = on_tie_away};

/* From now on the renewal looks after the lock, not the attempt that took, extended or tied it. An
 * event that came in between is in the tie. The end of the connection is no event. */
static void take_over(kept_lock *kept) {
    tie *tie = kept->attempt->terms.tie;
    bool is_tied = tie != NULL && tie->guest.presence != NULL && tie->life != NULL;
    if (is_tied && !kept->is_untied)
        lease_follow(kept->lease, tie->life, tie->is_endless, renewal_now_us(kept->renewal));
    schedule_next(kept);
    if (tie == NULL) return;
    bool is_lost = tie->is_lost, is_forgotten = tie->is_forgotten;
    tie->is_lost = tie->is_forgotten = false;
    tie->guest.table = &kept_guests;
    tie->guest.arg = kept;
    if (is_lost)
        lease_lose(kept->lease, DLOCK_LOST);
    else if (is_forgotten || !is_tied)
        tie_again(kept);
    else if (!presence_is_open(&tie->guest))
        on_tie_away(&tie->guest);
}

/* Failures after which the lock may still be held: the same ACQUIRE is sent again after a pause. */
static bool may_tie_later(const attempt *attempt) {
    return attempt->status == DLOCK_UNREACHABLE || attempt->status == DLOCK_NO_MEMORY ||
           attempt->status == DLOCK_IN_DOUBT ||
           (attempt->status == DLOCK_REFUSED && attempt->is_transient);
}

static bool is_renewed(const kept_lock *kept) {
    return kept->lease->rule.renew_every_ms > 0;
}

/* A server that was restarted has given the lock a lease as long as the timeout of the session, and
 * the rest of its own lease may be longer. Where the lock is renewed, an extension follows. The
 * server never makes a lease shorter. */
static uint32_t tie_lease_ms(const kept_lock *kept) {
    uint32_t left_ms = lease_own_left_ms(kept->lease, renewal_now_us(kept->renewal));
    return is_renewed(kept) || left_ms == 0 ? 1 : left_ms;
}

/* The ACQUIRE took a lock that nobody uses. It ends with the session, or with its own lease. */
static void withdraw_tie(deployment *deployment, const attempt *attempt) {
    bool is_longer = attempt->lease_ms > deployment->session_ms;
    withdrawals_add(deployment, attempt, is_longer ? attempt->lease_ms : deployment->session_ms);
}

/* Another fence: the lock was lost in between, and the ACQUIRE took it anew. */
static void settle_tie(kept_lock *kept) {
    const attempt *attempt = kept->attempt;
    deployment *deployment = kept->renewal->deployment;
    if (attempt->status == DLOCK_OK && attempt->fence == kept->lease->fence) {
        kept->is_untied = false;
        kept->pause_ms = 0;
        atomic_store(&kept->lease->why, DLOCK_OK);
        lease_question(kept->lease, false);
        if (!is_renewed(kept))
            lease_extend(kept->lease, attempt->asked_us, attempt->lease_ms,
                         renewal_now_us(kept->renewal));
        take_over(kept);
        return;
    }
    if (attempt->status == DLOCK_OK) withdraw_tie(deployment, attempt);
    if (may_tie_later(attempt))
        schedule_retry(kept, attempt->status);
    else
        lease_lose(kept->lease, DLOCK_LOST);
}

/* -- extensions and ties */

static void settle_extension(kept_lock *kept) {
    const attempt *attempt = kept->attempt;
    renewal *renewal = kept->renewal;
    if (attempt->status == DLOCK_LOST) {
        lease_lose(kept->lease, DLOCK_LOST);
    } else if (attempt->status != DLOCK_OK) {
        schedule_retry(kept, attempt->status);
    } else if (lease_extend(kept->lease, attempt->asked_us, attempt->lease_ms,
                            renewal_now_us(renewal))) {
        atomic_fetch_add(&renewal->deployment->renewed, 1);
        kept->pause_ms = 0;
        schedule_next(kept);
    }
}

static void on_attempt_done(attempt *attempt) {
    kept_lock *kept = attempt->arg;
    restore_attempt(kept);
    if (kept->is_untied)
        settle_tie(kept);
    else
        settle_extension(kept);
}

static void start_attempt(kept_lock *kept, uint32_t lease_ms) {
    deployment *deployment = kept->renewal->deployment;
    attempt *attempt = kept->attempt;
    int64_t limit_ms = deployment_short_ms(deployment);
    bool is_tying = kept->is_untied;
    attempt->operation = is_tying ? DLOCK_ACQUIRING : DLOCK_EXTENDING;
    attempt->lease_ms = is_tying ? tie_lease_ms(kept) : lease_ms;
    attempt->wait_until_us = 0;
    attempt->limit_us = deadline_after_ms(renewal_now_us(kept->renewal), limit_ms);
    attempt->is_background = true; /* the lock is held: nothing is withdrawn */
    attempt->on_done = on_attempt_done;
    attempt->arg = kept;
    attempt->fence = is_tying ? 0 : kept->lease->fence;
    kept->is_under_way = true;
    deployment_start(deployment, attempt);
}

/* -- a wave */

static bool can_join(const kept_lock *kept, int64_t now_us) {
    int64_t early_us = (int64_t)lease_every_ms(kept->lease) * 1000 / JOIN_PARTS;
    return !kept->is_untied && kept->pause_ms == 0 && kept->node.due_us <= now_us + early_us &&
           lease_renew_for_ms(kept->lease, now_us) > 0;
}

/* No attempt is made for a lock that is gone, or that a renewal would prolong too little. */
static void start_renewal(kept_lock *kept, int64_t now_us) {
    uint32_t lease_ms = lease_renew_for_ms(kept->lease, now_us);
    if (now_us >= lease_gone_at_us(kept->lease)) return;
    if (lease_ms > 0 || kept->is_untied) start_attempt(kept, lease_ms);
}

static void on_renewal_due(loop_timer *timer) {
    renewal *renewal = container_of(timer, struct renewal, timer);
    int64_t now_us = renewal_now_us(renewal);
    size_t joiners = 0;
    heap_node *first;
    while ((first = heap_first(&renewal->due)) != NULL) {
        kept_lock *kept = container_of(first, kept_lock, node);
        bool is_due = first->due_us <= now_us;
        if (!is_due && (joiners == JOINERS_MAX || !can_join(kept, now_us))) break;
        if (!is_due) joiners++;
        heap_remove(&renewal->due, first);
        start_renewal(kept, now_us);
    }
    set_renewal_timer(renewal);
}

/* -- public */

void renewal_init(renewal *renewal, deployment *deployment) {
    *renewal = (struct renewal){.deployment = deployment, .timer.on_due = on_renewal_due};
}

void renewal_begin(renewal *renewal, kept_lock *kept) {
    kept->renewal = renewal;
    kept->pause_ms = 0;
    take_over(kept);
}

void renewal_end(kept_lock *kept) {
    renewal *renewal = kept->renewal;
    if (renewal == NULL) return;
    tie *tie = kept->attempt->terms.tie;
    unschedule(kept);
    abandon_attempt(kept);
    if (tie != NULL) presence_leave(&tie->guest);
    kept->is_untied = kept->is_paused = false;
    kept->renewal = NULL;
    set_renewal_timer(renewal);
}

bool renewal_pause(kept_lock *kept) {
    if (kept->renewal == NULL) return true;
    if (kept->is_untied) return false;
    unschedule(kept);
    abandon_attempt(kept);
    kept->is_paused = true;
    set_renewal_timer(kept->renewal);
    return true;
}

void renewal_resume(kept_lock *kept) {
    if (kept->renewal == NULL || !kept->is_paused) return;
    kept->is_paused = false;
    kept->pause_ms = 0;
    take_over(kept);
}
