/* SPDX-License-Identifier: BSD-3-Clause */
/* hotspot.c - see hotspot.h.
 *
 *   acquire   enter: take the local lock of the name, or queue for it. Then go out to the service,
 *             unless the lock was handed on with enough of its lease.
 *             leave: after a failure, pass the local lock on at once
 *   release   enter: hand the lock on to the first queued call; else the release goes out.
 *             leave: pass the local lock on. If requests stay in order, on_sent has done so already
 *   evict     the lease of a holder has ended, and other calls want the lock: the thread hangs, or
 *             has forgotten the release. The first queued call goes out to the service
 *
 * A name has a local lock while registered, or contended lately (hot_names.h). A name that is
 * removed meanwhile lives on for its users; only new calls pass by.
 *
 * Shared claims pass by: a local lock has one holder, and would make readers wait for each other.
 * Claims on several names pass by: with a local lock for each name, a call would hold some of them
 * while it waits for the others, and calls could wait for each other in a circle.
 *
 * Invariants: all of a hot_name is under the loop's mutex. hot->holder and call->held point at each
 * other, or are NULL. */
#include "handlers/hotspot.h"

#define HELD_HERE "another thread here holds the lock, or waits for it"

/* An acquire that took longer had to wait for another holder. */
enum { LONG_US = 5000 };

static bool passes_by(const call *call) {
    return call->pub.mode == DLOCK_SHARED || attempt_has_several(&call->attempt);
}

static dlock_step answer(call *call, dlock_status status, const char *cause) {
    call_set_result(call, status, cause);
    return DLOCK_ANSWER;
}

static int64_t hot_lock_end_us(const hot_lock *lock) {
    return validity_end_us(lock->asked_us, lock->lease_ms);
}

/* -- the holder. Locked, all of these */

/* The lock of the holder ends by itself then, unless it is renewed until then. */
static int64_t holder_end_us(const hot_name *hot) {
    int64_t granted_us = hot_lock_end_us(&hot->lock);
    int64_t renewed_us = lease_gone_at_us(&hot->holder->lease);
    return granted_us > renewed_us ? granted_us : renewed_us;
}

static void watch_holder(loop *loop, hot_name *hot) {
    bool is_needed = hot->holder != NULL && !list_is_empty(&hot->queue);
    if (is_needed) loop_set_timer(loop, &hot->timer, holder_end_us(hot));
}

static void let_hold(hot_name *hot, call *call) {
    hot->holder = call;
    atomic_store(&call->held, hot);
    watch_holder(call->loop, hot);
}

static void end_local_hold(loop *loop, hot_name *hot) {
    atomic_store(&hot->holder->held, NULL);
    hot->holder = NULL;
    loop_clear_timer(loop, &hot->timer);
}

/* -- the local lock. Locked, all of these */

static void on_queue_deadline(loop_timer *timer) {
    call *call = container_of(timer, struct call, timer);
    loop_ready(call->loop, &call->waiter);
}

static void on_holder_end(loop_timer *timer);

static void join_queue(call *call, hot_name *hot) {
    list_append(&hot->queue, &call->local.node);
    hot->length++;
    call->local.hot = hot;
    call->timer.on_due = on_queue_deadline;
    loop_set_timer(call->loop, &call->timer, call->pub.deadline_us);
    hot->timer.on_due = on_holder_end;
    watch_holder(call->loop, hot);
}

static void leave_queue(call *call) {
    list_remove(&call->local.node);
    call->local.hot->length--;
    loop_clear_timer(call->loop, &call->timer);
}

/* The first queued call holds the local lock from now on, or nobody. is_handed_on: and goes on with
 * the lock; else the call goes out with a token of its own. */
static void pass_local_on(hot_name *hot, bool is_handed_on) {
    list_node *first = list_first(&hot->queue);
    if (!is_handed_on) {
        hot->last_hand_ons = hot->hand_ons;
        hot->has_row = true;
    }
    hot->hand_ons = is_handed_on ? hot->hand_ons + 1 : 0;
    if (first == NULL) {
        hot_name_let_go(hot);
        return;
    }
    call *next = container_of(first, call, local.node);
    leave_queue(next);
    next->is_handed_on = is_handed_on;
    loop_ready(next->loop, &next->waiter);
}

static void leave_local(call *call) {
    hot_name *hot = call->local.hot;
    call->local.hot = NULL;
    if (hot != NULL) pass_local_on(hot, false);
}

/* True: the lease of a holder has ended, and the local lock was taken away. */
static bool evict(loop *loop, hot_name *hot) {
    if (hot->holder == NULL || loop_now_us(loop) < holder_end_us(hot)) return false;
    end_local_hold(loop, hot);
    return true;
}

static void on_holder_end(loop_timer *timer) {
    hot_name *hot = container_of(timer, hot_name, timer);
    list_node *first = list_first(&hot->queue);
    if (first == NULL) return; /* the next call in the queue sets the timer again */
    loop *loop = container_of(first, call, local.node)->loop;
    if (evict(loop, hot))
        pass_local_on(hot, false);
    else
        watch_holder(loop, hot);
}

/* -- handing on */

/* How many fences to reserve for the call and the threads that follow: twice as many as the last
 * row of threads needed, so that few fences are reserved for nothing; 0: no run. A lock with a tie
 * is not handed on. A run would even lose it: the lock is tied again by an ACQUIRE, whose reply is
 * the last fence of the run, and so not that of the grant. */
static uint16_t choose_run(const hotspot *hotspot, const call *call) {
    const hot_name *hot = call->local.hot;
    uint32_t most = call->attempt.terms.tie != NULL ? 1 : hotspot->hand_on + 1;
    uint32_t row = hot->hand_ons > hot->last_hand_ons ? hot->hand_ons : hot->last_hand_ons;
    if (most == 1) return 0;
    return (uint16_t)(hot->has_row && 2 * (row + 1) < most ? 2 * (row + 1) : most);
}

/* The run belongs to the grant of the service; a handler in between grants one fence. */
static void keep_fences(hot_lock *lock, call *call) {
    bool has_run = call->attempt.fences > 0 && call->pub.fence != 0 && call->pub.remote_us != 0;
    lock->fence = call->pub.fence;
    lock->fences_left = has_run ? call->attempt.fences - 1u : 0;
    call->attempt.fences = 0; /* renewals use the attempt */
}

/* Stores the lock of the holder, as granted or extended. */
static void keep_lock(hot_lock *lock, const call *call) {
    lock->min_replicas = call->attempt.terms.min_replicas;
    lock->fate = call->attempt.fate;
    lock->asked_us = call->pub.asked_us;
    lock->lease_ms = call->pub.lease_ms;
    text_copy(lock->token, sizeof(lock->token), call->pub.token);
}

static void keep_if_longer(hot_lock *lock, const call *call) {
    if (validity_end_us(call->pub.asked_us, call->pub.lease_ms) > hot_lock_end_us(lock))
        keep_lock(lock, call);
}

/* Locked. True: a queued call goes on with the lock. */
static bool hand_on(hotspot *hotspot, const call *call, hot_name *hot) {
    if (call->attempt.terms.tie != NULL || call->was_lost || call->has_late_command) return false;
    if (hot->lock.fence != 0 && hot->lock.fences_left == 0) return false;
    if (hot->hand_ons >= hotspot->hand_on || list_is_empty(&hot->queue)) return false;
    if (hot_lock_end_us(&hot->lock) <= loop_now_us(call->loop)) return false;
    pass_local_on(hot, true);
    atomic_fetch_add(&hotspot->hand_ons, 1);
    return true;
}

/* The call takes over the lock that was handed on. True: the lock has at least half of the wanted
 * lease left, and enough replicas have it. False: the call sends an acquire with the same token,
 * which renews the lock if it is still held. */
static bool accept_lock(const hotspot *hotspot, call *call, hot_lock *lock) {
    int64_t left_us = hot_lock_end_us(lock) - loop_now_us(call->loop);
    bool is_long_enough = left_us * 2 >= (int64_t)call->pub.lease_ms * 1000;
    bool is_safe_enough =
        call->attempt.terms.tie == NULL && call->attempt.terms.min_replicas <= lock->min_replicas;
    text_copy(call->pub.token, DLOCK_TOKEN_SIZE, lock->token);
    call->attempt.fate = lock->fate;
    attempt_note_grant(&call->attempt); /* after a failure, waiting.c withdraws the lock */
    /* The release must not fail for want of memory. */
    bool has_memory = attempt_prepare(&call->attempt, hotspot->deployment);
    if (!is_long_enough || !is_safe_enough || !has_memory) return false;
    if (lock->fences_left > 0) {
        lock->fence++;
        lock->fences_left--;
    }
    call->pub.fence = lock->fence;
    call->pub.asked_us = lock->asked_us;
    call->pub.lease_ms = lock->lease_ms;
    return true;
}

/* Locked. A lock that was handed on and not renewed is released, unless waiting.c did so: a
 * handler in between has answered, or the service was asked with another token at last. */
static void give_back(const hotspot *hotspot, const call *call) {
    const hot_lock *lock = &call->local.hot->lock;
    bool is_ok = call->pub.status == DLOCK_OK;
    bool is_same = strcmp(call->pub.token, lock->token) == 0;
    bool is_withdrawn = !is_ok && call->attempt.fate == TOKEN_UNHELD;
    if (is_same && (is_ok || is_withdrawn)) return;
    attempt handed_on = {.name = call->pub.name, .token = (char *)lock->token};
    withdrawals_add(hotspot->deployment, &handed_on, lock->lease_ms);
}

/* -- acquire */

/* The call holds the local lock. */
static dlock_step go_on_locally(hotspot *hotspot, call *call) {
    hot_name *hot = call->local.hot;
    hot_names_touch(&hotspot->names, hot);
    if (!call->is_handed_on || !accept_lock(hotspot, call, &hot->lock)) {
        call->attempt.fences = choose_run(hotspot, call);
        return DLOCK_PASS;
    }
    let_hold(hot, call);
    return answer(call, DLOCK_OK, "");
}

static dlock_step poll_queue(hotspot *hotspot, call *call) {
    bool is_queued = list_has(&call->local.node), is_canceled = call_is_canceled(call);
    bool is_late = loop_now_us(call->loop) >= call->pub.deadline_us;
    if (is_queued && !is_canceled && !is_late) return DLOCK_SUSPEND;
    atomic_fetch_sub(&hotspot->waiting, 1);
    if (!is_queued) return go_on_locally(hotspot, call);
    leave_queue(call);
    call->local.hot = NULL;
    return is_canceled ? answer(call, DLOCK_CANCELED, "canceled")
                       : answer(call, DLOCK_TIMEOUT, HELD_HERE);
}

static dlock_step take_local(hotspot *hotspot, call *call) {
    hot_name *hot = hot_names_find(&hotspot->names, call->pub.name);
    if (hot == NULL) return DLOCK_PASS;
    if (!hot->is_held || (list_is_empty(&hot->queue) && evict(call->loop, hot))) {
        hot->is_held = true;
        call->local.hot = hot;
        return go_on_locally(hotspot, call);
    }
    if (call_is_only_try(call)) return answer(call, DLOCK_BUSY, HELD_HERE);
    if (hot->length >= hotspot->queue_max)
        return answer(call, DLOCK_QUEUE_FULL,
                      "too many threads here wait for the lock (hotspot_queue_max)");
    join_queue(call, hot);
    atomic_fetch_add(&hotspot->waiting, 1);
    return poll_queue(hotspot, call);
}

static dlock_step enter_acquire(hotspot *hotspot, call *call) {
    bool is_queued = call->local.hot != NULL;
    if (!is_queued && (passes_by(call) || atomic_load(&hotspot->names.count) == 0))
        return DLOCK_PASS;
    loop_lock(call->loop);
    dlock_step step = is_queued ? poll_queue(hotspot, call) : take_local(hotspot, call);
    loop_unlock(call->loop);
    return step;
}

/* As far as can be seen from here, others wanted the lock too. */
static bool is_contended(const call *call) {
    const dlock_call *pub = &call->pub;
    if (passes_by(call)) return false;
    if (pub->remote_us == 0) return false; /* the service was not asked */
    if (pub->status == DLOCK_BUSY || pub->status == DLOCK_TIMEOUT) return true;
    if (pub->status != DLOCK_OK) return false;
    return pub->attempts > 1 || loop_now_us(call->loop) - pub->remote_us > LONG_US;
}

static void leave_acquire(hotspot *hotspot, call *call) {
    hot_name *hot = call->local.hot;
    bool is_granted = call->pub.status == DLOCK_OK;
    bool is_to_note = hot == NULL && hotspot->names.auto_max > 0 && is_contended(call);
    if (hot == NULL && !is_to_note) return;
    loop_lock(call->loop);
    if (is_to_note) hot_names_note(&hotspot->names, call->pub.name);
    if (call->is_handed_on) give_back(hotspot, call);
    if (hot != NULL && is_granted) {
        keep_lock(&hot->lock, call);
        keep_fences(&hot->lock, call);
        let_hold(hot, call);
    } else {
        leave_local(call);
    }
    loop_unlock(call->loop);
}

/* -- release and extend */

static void on_release_sent(attempt *attempt) {
    leave_local(attempt->arg);
}

/* True: the lock was handed on. */
static bool release_local(hotspot *hotspot, call *call, hot_name *hot) {
    end_local_hold(call->loop, hot);
    if (hot->lock.lease_ms != 0) keep_if_longer(&hot->lock, call); /* renewed */
    if (hand_on(hotspot, call, hot)) return true;
    call->local.hot = hot;
    /* Once the release is sent, all later requests arrive behind it. */
    call->attempt.on_sent = hotspot->is_ordered ? on_release_sent : NULL;
    return false;
}

static dlock_step enter_release(hotspot *hotspot, call *call) {
    if (atomic_load(&call->held) == NULL) return DLOCK_PASS;
    loop_lock(call->loop);
    hot_name *hot = atomic_load(&call->held); /* NULL: evicted just now */
    bool is_handed_on = hot != NULL && release_local(hotspot, call, hot);
    loop_unlock(call->loop);
    return is_handed_on ? answer(call, DLOCK_OK, "") : DLOCK_PASS;
}

static void leave_release(call *call) {
    if (call->local.hot == NULL) return;
    loop_lock(call->loop);
    leave_local(call);
    loop_unlock(call->loop);
}

/* An extension never shortens a lease, so a failed extension changes nothing. */
static void leave_extend(call *call) {
    if (atomic_load(&call->held) == NULL) return;
    loop_lock(call->loop);
    hot_name *hot = atomic_load(&call->held);
    if (hot != NULL && call->pub.status == DLOCK_OK) keep_if_longer(&hot->lock, call);
    if (hot != NULL && call->pub.status == DLOCK_LOST) hot->lock.lease_ms = 0;
    loop_unlock(call->loop);
}

void hotspot_forget(call *call) {
    loop_lock(call->loop);
    hot_name *hot = atomic_load(&call->held);
    if (hot != NULL) {
        end_local_hold(call->loop, hot);
        pass_local_on(hot, false);
    }
    loop_unlock(call->loop);
}

/* -- the handler */

static dlock_step enter_hotspot(void *arg, dlock_call *pub) {
    if (pub->operation == DLOCK_ACQUIRING) return enter_acquire(arg, call_of(pub));
    if (pub->operation == DLOCK_RELEASING) return enter_release(arg, call_of(pub));
    return DLOCK_PASS;
}

static void leave_hotspot(void *arg, dlock_call *pub) {
    if (pub->operation == DLOCK_ACQUIRING)
        leave_acquire(arg, call_of(pub));
    else if (pub->operation == DLOCK_RELEASING)
        leave_release(call_of(pub));
    else
        leave_extend(call_of(pub));
}

dlock_handler hotspot_handler(hotspot *hotspot) {
    return (dlock_handler){.name = "hotspot",
                           .order = DLOCK_ORDER_HOTSPOT,
                           .arg = hotspot,
                           .enter = enter_hotspot,
                           .leave = leave_hotspot};
}
