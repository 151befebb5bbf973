/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_calls.c - acquire, extend, release and cancel of a handle (lock.h).
 *
 *              begin                                   settle
 *   acquire    fresh token; prepare renewal, notifier  lease begins -> renewal begins -> ACQUIRED
 *                                                      is told -> notifier watches
 *   extend     renewal pauses                          lease extended or lost -> renewal resumes
 *   release    renewal ends -> notifier forgets ->     RELEASED is told
 *              lease ends
 *
 * The chain runs between begin and settle. Nothing can fail after a grant. The mutex is held only
 * around leases, renewal and notifier, never while user code runs. */
#include "api/lock.h"

#include "api/options.h"
#include "base/text.h"

static bool is_to_be_kept(const dlock_lock *lock) {
    return lock->call.lease.rule.renew_every_ms != 0 || lock_is_session(lock);
}

static void count_up(atomic_uint_least64_t *counter) {
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static void tell_event_of_lock(const dlock_lock *lock, dlock_event event, dlock_status why) {
    const notifier *notifier = &lock->client->notifier;
    if (notifier->on_event != NULL)
        notifier->on_event(notifier->event_arg, event, lock->call.pub.name, why);
}

dlock_status lock_finish(dlock_lock *lock, dlock_status status, const char *error) {
    if (status == DLOCK_LOST) lock->is_loss_seen = true;
    dlock_call_explain(&lock->call.pub, status == DLOCK_OK ? "" : error_words(status, error));
    return status;
}

bool lock_answer(dlock_lock *lock, call_plan *plan, dlock_status status, const char *error) {
    plan->answered = lock->call.pub.status = lock_finish(lock, status, error);
    return false;
}

/* Prepares the call of the handle. A release and an extend are about the lock that is held. */
static dlock_call *prepare_call(dlock_lock *lock, dlock_operation operation, uint32_t lease_ms) {
    call *call = &lock->call;
    int64_t now_us = lock_now_us(lock);
    chain_begin(call);
    call->attempt.on_sent = NULL;
    call->attempt.fences = 0;
    lock->is_cold = hotspot_is_idle(&lock->client->hotspot, call);
    loop_note_cancels(call->loop, &call->waiter, &call->cancel);
    atomic_store(&call->stop, operation == DLOCK_ACQUIRING ? CALL_CANCELABLE : CALL_GOES_ON);
    call->was_lost = false;
    text_drop(&call->pub.cause);
    call->pub = (dlock_call){.struct_size = sizeof(dlock_call),
                             .operation = operation,
                             .name = call->pub.name,
                             .lease_ms = lease_ms,
                             .mode = call->attempt.terms.mode,
                             .max_holders = call->attempt.terms.max_holders,
                             .started_us = now_us,
                             .deadline_us = now_us,
                             .token = call->attempt.token,
                             .fence = lock->call.lease.fence,
                             .asked_us = lease_asked_us(&lock->call.lease),
                             .cause = text_nothing};
    return &call->pub;
}

/* -- acquire */

/* Starts the background thread if it has to keep the lock or to tell of its loss. False: the thread
 * cannot be started. With Redlock the thread also finishes the requests to servers that are slower
 * than the majority; without it, the next call finishes them, so there a failure does no harm. */
static bool prepare_background(dlock_lock *lock) {
    dlock_client *client = lock->client;
    bool is_needed = is_to_be_kept(lock) || client->notifier.on_event != NULL;
    if (!is_needed && !client->has_quorum) return true;
    return client_start_background(client) || !is_needed;
}

static void count_acquire(dlock_client *client, dlock_status status) {
    counters *counters = &client->counters;
    count_up(status == DLOCK_OK           ? &counters->acquired
             : status == DLOCK_BUSY       ? &counters->busy
             : status == DLOCK_TIMEOUT    ? &counters->timeouts
             : status == DLOCK_QUEUE_FULL ? &counters->queue_full
                                          : &counters->failures);
}

static void note_timings(dlock_lock *lock) {
    const dlock_call *call = &lock->call.pub;
    int64_t now_us = lock_now_us(lock);
    int64_t remote_us = call->remote_us != 0 ? call->remote_us : now_us;
    lock->local_us = remote_us - call->started_us;
    lock->remote_us = now_us - remote_us;
    lock->attempts = call->attempts;
    lock->refused_by = call->status == DLOCK_OK ? DLOCK_LEG_NONE
                       : call->remote_us == 0   ? DLOCK_LEG_LOCAL
                                                : DLOCK_LEG_REMOTE;
}

static void begin_holding(dlock_lock *lock) {
    dlock_client *client = lock->client;
    const dlock_call *call = &lock->call.pub;
    lock->depth = 1;
    loop_lock(client->loop);
    lock->call.lease.fence = call->fence;
    lease_begin(&lock->call.lease, call->asked_us, call->lease_ms, lock_now_us(lock));
    lock->is_served = call->remote_us != 0 || lock->call.is_handed_on;
    if (is_to_be_kept(lock)) renewal_begin(&client->renewal, &lock->kept->kept);
    bool is_tied = lock->call.attempt.terms.tie != NULL; /* and the session tells of a loss */
    if (lock->call.lease.has_lead && lock->is_served && !is_tied) lock_begin_watches(lock);
    loop_unlock(client->loop);

    /* ACQUIRED is told before any other event of the lock: the notifier comes after it. on_event()
     * may do anything with the lock, even release and acquire it again. */
    if (client->notifier.on_event == NULL) return;
    tell_event_of_lock(lock, DLOCK_EVENT_ACQUIRED, DLOCK_OK);
    bool is_released = dlock_get_state(lock) == DLOCK_STATE_FREE; /* or the release is under way */
    if (is_released) return;
    loop_lock(client->loop);
    notifier_add(&client->notifier, &lock->kept->watched);
    loop_unlock(client->loop);
}

/* False: the lock is about to be tied again; an extension would prove nothing. */
static bool pause_renewal(dlock_lock *lock) {
    loop *loop = lock->client->loop;
    if (!is_to_be_kept(lock)) return true;
    loop_lock(loop);
    bool is_paused = renewal_pause(&lock->kept->kept);
    loop_unlock(loop);
    return is_paused;
}

/* With the usual lease and renewals the lock lasts as long as the session. With others the lease
 * counts as well, and is extended. Names in several slots are at several servers, as a rule: such a
 * lock has no tie. */
static void plan_tie(dlock_lock *lock) {
    const lease *lease = &lock->call.lease;
    attempt_terms *terms = &lock->call.attempt.terms;
    bool is_usual = lease->planned_ms == lock->client->deployment->session_ms &&
                    lease_every_ms(lease) == lease->planned_ms / 3;
    terms->tie = NULL;
    if (lock->kept == NULL || lock_has_slots(lock)) return;
    lock->kept->tie.is_lost = lock->kept->tie.is_forgotten = false;
    lock->kept->tie.is_endless =
        is_usual && lease->rule.max_hold_ms == 0 && terms->min_replicas == 0;
    if (lock->kept->tie.is_endless || lock->kept->tie.is_momentary) terms->tie = &lock->kept->tie;
}

/* The lock is not held by this handle. */
static bool begin_acquire(dlock_lock *lock, call_plan *plan) {
    if (!token_source_take(&lock->client->tokens, lock->owner, lock->call.attempt.token))
        return lock_answer(lock, plan, DLOCK_NO_MEMORY, "no random bytes for a token");
    if (!prepare_background(lock))
        return lock_answer(lock, plan, DLOCK_NO_MEMORY, "no memory or thread to keep the lock");
    lock->is_loss_seen = false;
    lease_plan(&lock->call.lease, plan->lease_ms);
    plan_tie(lock);
    dlock_call *call = prepare_call(lock, DLOCK_ACQUIRING, lock->call.lease.planned_ms);
    lock->call.attempt.fate = TOKEN_UNHELD;
    lock->call.has_late_command = false;
    call->fence = 0;
    call->asked_us = 0;
    call->deadline_us = deadline_after_ms(call->started_us, plan->wait_ms);
    return true;
}

/* The lock was granted, but the call has failed: the grant came too late, for instance. */
static void leave_session_of_lock(dlock_lock *lock) {
    if (lock->kept == NULL) return;
    loop_lock(lock->client->loop);
    presence_leave(&lock->kept->tie.guest);
    loop_unlock(lock->client->loop);
}

static dlock_status settle_acquire(dlock_lock *lock) {
    const dlock_call *call = &lock->call.pub;
    dlock_status status = call->status;
    note_timings(lock);
    count_acquire(lock->client, status);
    lock_finish(lock, status, call->cause);
    if (status == DLOCK_OK) {
        begin_holding(lock);
    } else {
        leave_session_of_lock(lock);
        atomic_store(&lock->taker, 0);
    }
    return status;
}

/* -- extend */

static dlock_status settle_extend(dlock_lock *lock) {
    loop *loop = lock->client->loop;
    dlock_call *call = &lock->call.pub;
    loop_lock(loop);
    int64_t now_us = loop_now_us(loop);
    if (call->status == DLOCK_OK &&
        !lease_extend(&lock->call.lease, call->asked_us, call->lease_ms, now_us)) {
        call->status = DLOCK_LOST;
        dlock_call_explain(call, "the lease had ended before the extension");
    }
    if (call->status == DLOCK_LOST) lease_lose(&lock->call.lease, DLOCK_LOST);
    if (call->status == DLOCK_OK && lock->is_deepening) lock->depth++;
    if (lock->kept != NULL) renewal_resume(&lock->kept->kept);
    loop_unlock(loop);
    return lock_finish(lock, call->status, call->cause);
}

/* For an extend, and for an acquire of a lock that is held already: one level more, and an
 * extension if the program wants a lease of its own. */
static bool begin_extend(dlock_lock *lock, call_plan *plan) {
    uint32_t lease_ms = plan->lease_ms != 0 ? plan->lease_ms : lock->call.lease.planned_ms;
    bool is_deepening = plan->operation == DLOCK_ACQUIRING;
    if (lock_is_lost(lock))
        return lock_answer(lock, plan, DLOCK_LOST, "the lease has ended meanwhile");
    if (is_deepening && plan->lease_ms == 0) {
        lock->depth++;
        return lock_answer(lock, plan, DLOCK_OK, "");
    }
    if (!pause_renewal(lock))
        return lock_answer(lock, plan, DLOCK_UNREACHABLE,
                           "the connection of the session has ended");
    prepare_call(lock, DLOCK_EXTENDING, lease_ms);
    lock->is_deepening = is_deepening;
    return true;
}

/* -- release */

/* True: the lock is lost, or a loss cannot be excluded. */
static bool end_holding(dlock_lock *lock) {
    dlock_client *client = lock->client;
    loop_lock(client->loop);
    bool is_in_question = atomic_load(&lock->call.lease.is_in_question);
    bool is_lost = is_in_question || lock_is_lost(lock);
    if (lock->kept != NULL) {
        renewal_end(&lock->kept->kept);
        notifier_remove(&lock->kept->watched); /* gives the mutex back: no watch begins after it */
        for (unsigned i = 0; lock->kept->watches != NULL && i < lock->call.attempt.name_count; i++)
            name_watch_end(&lock->kept->watches[i]);
    }
    lease_end(&lock->call.lease);
    loop_unlock(client->loop);
    return is_lost;
}

/* After a loss the renewal may have taken the lock again, so a RELEASE that succeeds proves
 * nothing. */
static void settle_tied(dlock_lock *lock) {
    dlock_call *call = &lock->call.pub;
    if (call->status != DLOCK_OK || !lock->call.was_lost) return;
    call->status = DLOCK_LOST;
    dlock_call_explain(call, "the session had ended");
}

static bool begin_release(dlock_lock *lock, call_plan *plan) {
    if (lock->depth > 1) {
        lock->depth--;
        return lock_answer(lock, plan, DLOCK_OK, "");
    }
    bool is_lost = end_holding(lock);
    prepare_call(lock, DLOCK_RELEASING, lock->call.lease.lease_ms);
    lock->call.was_lost = is_lost;
    return true;
}

/* A handler of the program may have answered the release, so that nothing behind it heard of the
 * release. With DLOCK_OK the handler answers for the lock. */
static void release_what_is_left(dlock_lock *lock) {
    dlock_client *client = lock->client;
    const dlock_call *call = &lock->call.pub;
    bool is_unsent = lock->call.waiting.phase == WAITING_IDLE;
    if (atomic_load(&lock->call.held) != NULL) hotspot_forget(&lock->call);
    if (!is_unsent || !lock->is_served || call->status == DLOCK_OK) return;
    loop_lock(client->loop);
    withdrawals_add(client->deployment, &lock->call.attempt, call->lease_ms);
    loop_unlock(client->loop);
}

static dlock_status settle_release(dlock_lock *lock) {
    const dlock_call *call = &lock->call.pub;
    counters *counters = &lock->client->counters;
    release_what_is_left(lock);
    if (lock->call.attempt.terms.tie != NULL) settle_tied(lock);
    dlock_status status = call->status;
    count_up(status == DLOCK_OK     ? &counters->released
             : status == DLOCK_LOST ? &counters->lost
                                    : &counters->failures);
    lock->depth = 0;
    lock->call.lease.fence = 0;
    lock_finish(lock, status, call->cause);
    atomic_store(&lock->taker, 0);
    tell_event_of_lock(lock, DLOCK_EVENT_RELEASED, status);
    return status;
}

/* -- all calls */

/* The program knows of the loss and acquires again: handlers hear of the end of the lost
 * acquisition, and a withdrawal releases what is left of it, so nobody waits for a reply. */
static void end_lost_hold(dlock_lock *lock) {
    end_holding(lock);
    prepare_call(lock, DLOCK_RELEASING, lock->call.lease.lease_ms);
    lock->call.was_lost = true;
    atomic_store(&lock->call.stop, CALL_STOPPED);
    chain_finish(lock_chain(lock), &lock->call);
    call_set_result(&lock->call, DLOCK_LOST, "the lease has ended meanwhile");
    settle_release(lock);
}

/* The reason is dlock_error(). dlock_last_error() belongs to the call under way, or to another
 * thread. */
static bool refuse_call(call_plan *plan, const char *why) {
    plan->answered = error_set(DLOCK_INVALID, why);
    return false;
}

static bool begin_call(dlock_lock *lock, call_plan *plan) {
    bool is_acquire = plan->operation == DLOCK_ACQUIRING;
    if (lock->done != NULL || lock->call.is_under_way)
        return refuse_call(plan, "a call of this lock is under way");
    if (is_acquire && lock->is_ending) return refuse_call(plan, LOCK_ENDS);
    if (plan->operation == 0) return guarded_begin(lock, plan);
    if (is_acquire && plan->wait_ms < DLOCK_WAIT_FOREVER)
        return lock_answer(lock, plan, DLOCK_INVALID, "wait_ms is negative");
    if (!is_acquire && lock->depth == 0)
        return lock_answer(lock, plan, DLOCK_NOT_HELD, "the lock is not held");
    if (plan->lease_ms != 0 && plan->lease_ms < OPTION_LEASE_MIN_MS)
        return lock_answer(lock, plan, DLOCK_INVALID, "lease_ms is less than 10");
    if (plan->operation == DLOCK_RELEASING) return begin_release(lock, plan);
    if (is_acquire && lock->depth > 0 && lock->is_loss_seen && lock->scopes == NULL) {
        end_lost_hold(lock);
        return lock_begin(lock, plan);
    }
    return lock->depth == 0 ? begin_acquire(lock, plan) : begin_extend(lock, plan);
}

bool lock_begin(dlock_lock *lock, call_plan *plan) {
    if (plan->operation != DLOCK_ACQUIRING) return begin_call(lock, plan);
    uint64_t taker = 0, self = thread_number();
    bool is_first = atomic_compare_exchange_strong(&lock->taker, &taker, self);
    if (!is_first && taker != self)
        return refuse_call(plan,
                           "another thread has taken the lock by this handle, or waits for it: "
                           "each thread needs a handle of its own");
    bool is_begun = begin_call(lock, plan);
    if (is_first && !is_begun) atomic_store(&lock->taker, 0);
    return is_begun;
}

dlock_status lock_settle(dlock_lock *lock) {
    dlock_operation operation = lock->call.pub.operation;
    if (lock->guarded != NULL) return guarded_settle(lock);
    if (operation == DLOCK_ACQUIRING) return settle_acquire(lock);
    return operation == DLOCK_EXTENDING ? settle_extend(lock) : settle_release(lock);
}

/* -- the blocking calls */

static dlock_status run_call(dlock_lock *lock, call_plan plan) {
    if (lock == NULL) return error_set(DLOCK_INVALID, NO_LOCK);
    if (!lock_begin(lock, &plan)) return plan.answered;
    chain_finish(lock_chain(lock), &lock->call);
    return lock_settle(lock);
}

dlock_status dlock_acquire_for(dlock_lock *lock, int64_t wait_ms, uint32_t lease_ms) {
    call_plan plan = {.operation = DLOCK_ACQUIRING, .wait_ms = wait_ms, .lease_ms = lease_ms};
    return run_call(lock, plan);
}

dlock_status dlock_acquire(dlock_lock *lock, int64_t wait_ms) {
    return dlock_acquire_for(lock, wait_ms, 0);
}

dlock_status dlock_try_acquire(dlock_lock *lock) {
    return dlock_acquire(lock, DLOCK_NO_WAIT);
}

dlock_status dlock_extend(dlock_lock *lock, uint32_t lease_ms) {
    return run_call(lock, (call_plan){.operation = DLOCK_EXTENDING, .lease_ms = lease_ms});
}

dlock_status dlock_release(dlock_lock *lock) {
    return run_call(lock, (call_plan){.operation = DLOCK_RELEASING});
}

dlock_status dlock_guarded(dlock_lock *lock, size_t argc, const char *const *argv,
                           const size_t *argvlen, dlock_reply *reply) {
    guarded_words words = {.count = argc, .words = argv, .lengths = argvlen};
    return run_call(lock, (call_plan){.words = &words, .reply = reply});
}

/* -- canceling. Not locked: signal handlers cancel, too */

void dlock_cancel(dlock_lock *lock) {
    if (lock == NULL) return;
    cancel_set(&lock->call.cancel);
    loop_interrupt(lock->client->loop);
}

void dlock_uncancel(dlock_lock *lock) {
    if (lock != NULL) cancel_lift(&lock->call.cancel);
}

void dlock_client_cancel(dlock_client *client) {
    if (client != NULL) loop_cancel(client->loop, true);
}

void dlock_client_uncancel(dlock_client *client) {
    if (client != NULL) loop_cancel(client->loop, false);
}
