/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting.c - see waiting.h.
 *
 *   acquire   IDLE -> ATTEMPT -> OK ------------------------------------> answer
 *                     ^     |     \-> CONFIRM (after a long wait) -> OK -> answer
 *                     |     v                                 \-> lost: as busy
 *                     +-- PAUSE <- busy or transient, and time is left, or the votes of several
 *                                  servers are split; else answer
 *   release   IDLE -> ATTEMPT -> answer, or PAUSE -> ATTEMPT within one I/O timeout
 *   extend    the same, with one repetition at most
 *
 * enter_waiting() is called whenever the call may go on, and returns DLOCK_SUSPEND while an attempt
 * or a pause is under way. All of this file but enter_waiting() runs locked (loop.h). The functions
 * that return a bool: true if the call is answered.
 *
 * A split vote is no answer: several clients that vote at the same moment can keep the lock from
 * each other, and then nobody has it. So even a single try votes again, VOTES_MAX times in all,
 * after a random pause that grows, and in time for the reply to come by the limit of the call.
 *
 * Trouble: what fails for one acquire fails for all. The more of them pause after a failure, the
 * longer each pauses, so that a server that is down, loads or takes no writes is not flooded.
 *
 * Invariants: no attempt begins after the deadline, but the first and those after a split vote.
 * Call and attempt share one token, which the deployment may change while an acquire goes on. Until
 * the acquire ends, the status and the cause of the call are those of the last attempt that ended.
 * An acquire that fails while a server may hold the lock is withdrawn. A cancel never undoes a
 * grant. */
#include "handlers/waiting.h"

#include "deployment/presence.h"

enum { REPEAT_PAUSE_MS = 10, VOTES_MAX = 4, VOTE_PAUSE_MS = 20 };
enum { FEW = 16, TROUBLE_PAUSE_MAX_MS = 1000 };

/* A grant that took more than this part of the lease is extended at once: the lease counts from
 * before the request was sent, and would end too soon. */
enum { LONG_WAIT_PARTS = 10 };

static void withdraw(const waiting *waiting, call *call) {
    withdrawals_add(waiting->deployment, &call->attempt, call->pub.lease_ms);
    call->attempt.fate = TOKEN_UNHELD;
}

/* -- attempts and pauses */

static void on_pause_over(loop_timer *timer) {
    call_finish_step(&container_of(timer, call, timer)->attempt);
}

static void start_call_attempt(const waiting *waiting, call *call, dlock_operation operation,
                               int64_t wait_until_us, int64_t limit_us) {
    attempt *attempt = &call->attempt;
    attempt->operation = operation;
    attempt->lease_ms = call->pub.lease_ms;
    attempt->wait_until_us = wait_until_us;
    attempt->limit_us = limit_us;
    attempt->fence = operation == DLOCK_ACQUIRING ? 0 : call->pub.fence;
    attempt->is_background = false;
    attempt->on_done = call_finish_step;
    attempt->arg = call;
    call->waiting.is_step_done = false;
    deployment_start(waiting->deployment, attempt);
}

static void start_pause(call *call, int64_t until_us) {
    waiting_state *state = &call->waiting;
    state->phase = WAITING_PAUSE;
    state->is_step_done = false;
    call->timer.on_due = on_pause_over;
    loop_set_timer(call->loop, &call->timer, until_us);
}

static void set_troubled(const waiting *waiting, call *call, bool is_troubled) {
    waiting->deployment->troubled += (size_t)is_troubled - (size_t)call->waiting.is_troubled;
    call->waiting.is_troubled = is_troubled;
}

/* The attempt or the pause, if one is under way. */
static void stop_step(const waiting *waiting, call *call) {
    set_troubled(waiting, call, false);
    if (call->waiting.phase == WAITING_PAUSE)
        loop_clear_timer(call->loop, &call->timer);
    else if (call->waiting.phase != WAITING_IDLE)
        deployment_abandon(waiting->deployment, &call->attempt);
}

/* -- acquire */

static bool answer_failure(const waiting *waiting, call *call) {
    if (call->attempt.fate != TOKEN_UNHELD) withdraw(waiting, call);
    return true;
}

static bool answer_canceled(const waiting *waiting, call *call) {
    call_set_result(call, DLOCK_CANCELED, "canceled");
    return answer_failure(waiting, call);
}

/* The last result stays, in the words of dlock.h. */
static bool give_up(const waiting *waiting, call *call) {
    dlock_status last = call->pub.status;
    bool was_sent = call->attempt.fate != TOKEN_UNHELD || call->waiting.was_unanswered;
    if (last == DLOCK_BUSY && !call_is_only_try(call)) call->pub.status = DLOCK_TIMEOUT;
    if (last == DLOCK_UNREACHABLE && was_sent) call->pub.status = DLOCK_IN_DOUBT;
    return answer_failure(waiting, call);
}

static bool can_park(const waiting *waiting) {
    return waiting->is_parked && deployment_can_wait(waiting->deployment);
}

/* An acquire ends one I/O timeout after the deadline, or after the begin of the first attempt. */
static int64_t acquire_limit_us(const waiting *waiting, const call *call) {
    int64_t first_us = call->pub.remote_us, deadline_us = call->pub.deadline_us;
    return deadline_after_ms(deadline_us > first_us ? deadline_us : first_us,
                             waiting->deployment->io_timeout_ms);
}

/* No further attempt begins then, or later. */
static int64_t last_try_us(const waiting *waiting, const call *call) {
    bool may_vote = call->attempt.is_split && call->pub.attempts < VOTES_MAX;
    int64_t half_ms = waiting->deployment->io_timeout_ms / 2, deadline_us = call->pub.deadline_us;
    int64_t vote_us = deadline_after_ms(call->pub.remote_us, half_ms);
    return may_vote && vote_us > deadline_us ? vote_us : deadline_us;
}

static bool start_acquire(const waiting *waiting, call *call) {
    waiting_state *state = &call->waiting;
    int64_t now_us = loop_now_us(call->loop), deadline_us = call->pub.deadline_us;
    bool is_parked = can_park(waiting) && deadline_us > now_us;
    state->begun_us = now_us;
    if (!attempt_prepare(&call->attempt, waiting->deployment)) {
        call_set_result(call, DLOCK_NO_MEMORY, "no memory");
        return answer_failure(waiting, call);
    }
    state->phase = WAITING_ATTEMPT;
    if (call->pub.attempts == 0) call->pub.remote_us = now_us;
    if (call->pub.attempts < UINT32_MAX) call->pub.attempts++;
    int64_t limit_us = acquire_limit_us(waiting, call);
    if (!is_parked) {
        int64_t short_ms = deployment_short_ms(waiting->deployment);
        limit_us = deadline_earlier(limit_us, deadline_after_ms(now_us, short_ms));
    }
    start_call_attempt(waiting, call, DLOCK_ACQUIRING, is_parked ? deadline_us : 0, limit_us);
    return false;
}

static bool try_again(const waiting *waiting, call *call) {
    if (call_is_canceled(call)) return answer_canceled(waiting, call);
    if (loop_now_us(call->loop) >= last_try_us(waiting, call)) return give_up(waiting, call);
    bool is_undone = call->pub.status == DLOCK_NO_REPLICAS; /* by a RELEASE of the token */
    if (is_undone && call->attempt.fate != TOKEN_UNHELD) withdraw(waiting, call);
    if (is_undone) attempt_change_token(&call->attempt);
    return start_acquire(waiting, call);
}

/* 0: the server has parked the request for as long as a pause. */
static int64_t choose_pause_us(const waiting *waiting, const call *call, int64_t now_us) {
    bool was_parked = call->pub.status == DLOCK_BUSY && can_park(waiting) &&
                      now_us - call->waiting.begun_us >= (int64_t)waiting->pause.min_ms * 1000;
    if (was_parked) return 0;
    const clock_source *clock = loop_clock(call->loop);
    int64_t left_us = deadline_left_us(last_try_us(waiting, call), now_us);
    backoff rule = waiting->pause;
    if (now_us >= call->pub.deadline_us) /* a split vote */
        rule = (backoff){.random_ms = (uint32_t)VOTE_PAUSE_MS << (call->pub.attempts - 1)};
    return backoff_pause_us(&rule, call->pub.attempts, clock->random_bits(clock), left_us);
}

/* All that are in trouble together ask about as often as FEW would. In half of the time that is
 * left, so that there is another attempt. */
static int64_t share_pause_us(const waiting *waiting, const call *call, int64_t pause_us,
                              int64_t left_us) {
    int64_t shared_us = pause_us * (1 + (int64_t)waiting->deployment->troubled / FEW);
    int64_t most_us = deadline_earlier((int64_t)TROUBLE_PAUSE_MAX_MS * 1000, left_us / 2);
    shared_us = deadline_earlier(shared_us, most_us);
    return call->waiting.is_troubled && shared_us > pause_us ? shared_us : pause_us;
}

/* A failure of the servers, and not what they say about the lock. */
static bool is_trouble(const attempt *attempt, dlock_status status) {
    return dlock_is_failure(status) || (status == DLOCK_NO_QUORUM && !attempt->is_split);
}

static bool judge_failure(const waiting *waiting, call *call, dlock_status status,
                          bool is_transient, const char *cause) {
    int64_t now_us = loop_now_us(call->loop);
    bool is_late = now_us >= last_try_us(waiting, call);
    bool is_vague = status == DLOCK_UNREACHABLE || status == DLOCK_NO_QUORUM;
    if (is_vague && is_late && call->waiting.has_failed) /* the result before says more */
        is_transient = true;
    else
        call_set_result(call, status, cause);
    call->waiting.has_failed = true;
    bool is_final = call->pub.status != DLOCK_BUSY && !is_transient;
    if (is_final || is_late) return give_up(waiting, call);
    if (call_is_canceled(call)) return answer_canceled(waiting, call);
    int64_t pause_us = choose_pause_us(waiting, call, now_us);
    if (pause_us == 0) return try_again(waiting, call);
    set_troubled(waiting, call, is_trouble(&call->attempt, status));
    int64_t left_us = deadline_left_us(last_try_us(waiting, call), now_us);
    start_pause(call, now_us + share_pause_us(waiting, call, pause_us, left_us));
    return false;
}

/* -- a grant */

static bool judge_grant(const waiting *waiting, call *call) {
    int64_t end_us = validity_end_us(call->pub.asked_us, call->pub.lease_ms);
    if (loop_now_us(call->loop) < end_us) {
        call_set_result(call, DLOCK_OK, "");
        return true;
    }
    return judge_failure(waiting, call, DLOCK_LOST, true,
                         "the lease had ended before the reply came");
}

static bool take_grant(const waiting *waiting, call *call) {
    int64_t now_us = loop_now_us(call->loop);
    attempt_note_grant(&call->attempt);
    call->pub.fence = call->attempt.fence;
    call->pub.asked_us = deadline_earlier(call->attempt.asked_us, now_us); /* a store may err */
    call->pub.lease_ms = call->attempt.lease_ms; /* a store may grant another */
    const tie *tie = call->attempt.terms.tie;
    int64_t waited_us = now_us - call->pub.asked_us;
    bool is_brief = waited_us * LONG_WAIT_PARTS <= (int64_t)call->pub.lease_ms * 1000;
    if (is_brief || (tie != NULL && tie->is_endless)) return judge_grant(waiting, call);
    int64_t reply_by_us = deadline_after_ms(now_us, waiting->deployment->io_timeout_ms);
    int64_t limit_us = deadline_earlier(acquire_limit_us(waiting, call), reply_by_us);
    call->waiting.phase = WAITING_CONFIRM;
    start_call_attempt(waiting, call, DLOCK_EXTENDING, 0, limit_us);
    return false;
}

/* The extension found the lock lost. The token may hold some of several names, but not all. */
static void give_up_grant(const waiting *waiting, call *call) {
    attempt *attempt = &call->attempt;
    if (attempt_has_several(attempt)) {
        withdraw(waiting, call);
        attempt_change_token(attempt);
    } else if (attempt->fate == TOKEN_HELD) {
        attempt->fate = TOKEN_UNHELD;
    }
}

/* Unless extended, the lease counts from the acquire. A store may extend by less. */
static bool settle_confirm(const waiting *waiting, call *call) {
    const attempt *attempt = &call->attempt;
    if (attempt->status == DLOCK_LOST) {
        give_up_grant(waiting, call);
        return judge_failure(waiting, call, DLOCK_BUSY, false, attempt->cause);
    }
    int64_t end_us = validity_end_us(call->pub.asked_us, call->pub.lease_ms);
    if (attempt->status == DLOCK_OK &&
        validity_end_us(attempt->asked_us, attempt->lease_ms) > end_us) {
        call->pub.asked_us = attempt->asked_us;
        call->pub.lease_ms = attempt->lease_ms;
    }
    return judge_grant(waiting, call);
}

static bool settle_attempt(const waiting *waiting, call *call) {
    const attempt *attempt = &call->attempt;
    if (attempt->status == DLOCK_OK) return take_grant(waiting, call);
    if (attempt->status == DLOCK_IN_DOUBT) call->waiting.was_unanswered = true;
    bool is_transient = attempt->is_transient || attempt->status == DLOCK_NO_REPLICAS;
    return judge_failure(waiting, call, attempt->status, is_transient, attempt->cause);
}

/* The call was canceled meanwhile. */
static bool stop_acquire(const waiting *waiting, call *call) {
    stop_step(waiting, call);
    return call->waiting.phase == WAITING_CONFIRM ? judge_grant(waiting, call)
                                                  : answer_canceled(waiting, call);
}

static bool go_on_acquiring(const waiting *waiting, call *call) {
    const waiting_state *state = &call->waiting;
    if (state->phase == WAITING_IDLE) {
        if (call_is_canceled(call)) return answer_canceled(waiting, call);
        return start_acquire(waiting, call);
    }
    if (!state->is_step_done) return call_is_canceled(call) && stop_acquire(waiting, call);
    if (state->phase == WAITING_ATTEMPT) return settle_attempt(waiting, call);
    if (state->phase == WAITING_CONFIRM) return settle_confirm(waiting, call);
    set_troubled(waiting, call, false);
    return try_again(waiting, call);
}

/* -- release and extend */

static int64_t io_limit_us(const waiting *waiting, const call *call) {
    return deadline_after_ms(call->waiting.begun_us, waiting->deployment->io_timeout_ms);
}

/* True: the attempt failed in a way that may pass, and is repeated after a pause. */
static bool repeat_later(const waiting *waiting, call *call) {
    int64_t resume_us = deadline_after_ms(loop_now_us(call->loop), REPEAT_PAUSE_MS);
    bool is_late = resume_us >= io_limit_us(waiting, call);
    if (!call->attempt.is_transient || call_is_canceled(call) || is_late) return false;
    start_pause(call, resume_us);
    return true;
}

static bool judge_release(const waiting *waiting, call *call) {
    const attempt *attempt = &call->attempt;
    waiting_state *state = &call->waiting;
    dlock_status status = attempt->status;
    int64_t end_us = validity_end_us(call->pub.asked_us, call->pub.lease_ms);
    if (status == DLOCK_LOST && state->was_unanswered && state->begun_us < end_us)
        status = DLOCK_OK; /* an earlier attempt has worked, and only its reply was lost */
    if (status == DLOCK_IN_DOUBT || status == DLOCK_NO_QUORUM) state->was_unanswered = true;
    if (status == DLOCK_UNREACHABLE && state->was_unanswered) status = DLOCK_IN_DOUBT;
    call_set_result(call, status, attempt->cause);
    if (status == DLOCK_OK || status == DLOCK_LOST) return true;
    if (repeat_later(waiting, call)) return false;
    withdraw(waiting, call);
    return true;
}

/* A repetition suffices if the server, or a proxy, had closed the connection. If the server is
 * down, the holder is to know soon. */
static bool judge_extend(const waiting *waiting, call *call) {
    const attempt *attempt = &call->attempt;
    waiting_state *state = &call->waiting;
    dlock_status status = attempt->status;
    bool is_repeated = state->has_failed;
    if (status == DLOCK_UNREACHABLE && state->was_unanswered) status = DLOCK_IN_DOUBT;
    if (status == DLOCK_IN_DOUBT) state->was_unanswered = true;
    call_set_result(call, status, attempt->cause);
    state->has_failed = status != DLOCK_OK;
    if (state->has_failed) return is_repeated || !repeat_later(waiting, call);
    call->pub.asked_us = attempt->asked_us;
    call->pub.lease_ms = attempt->lease_ms;
    return true;
}

/* The handle is freed. The attempt may not have been sent yet: a withdrawal goes on. */
static bool stop_release_or_extend(const waiting *waiting, call *call) {
    stop_step(waiting, call);
    if (call->pub.operation == DLOCK_RELEASING) withdraw(waiting, call);
    call->waiting.phase = WAITING_ATTEMPT; /* also if there was none: the service hears of it */
    call_set_result(call, DLOCK_CANCELED, "canceled");
    return true;
}

/* Within one I/O timeout from the begin of the call. */
static bool release_or_extend(const waiting *waiting, call *call) {
    waiting_state *state = &call->waiting;
    bool is_release = call->pub.operation == DLOCK_RELEASING;
    if (state->phase == WAITING_IDLE) state->begun_us = loop_now_us(call->loop);
    bool is_judged = state->phase == WAITING_ATTEMPT && state->is_step_done;
    if (call_is_canceled(call) && !is_judged) return stop_release_or_extend(waiting, call);
    if (state->phase != WAITING_IDLE && !state->is_step_done) return false;
    if (is_judged) return is_release ? judge_release(waiting, call) : judge_extend(waiting, call);
    state->phase = WAITING_ATTEMPT;
    start_call_attempt(waiting, call, call->pub.operation, 0, io_limit_us(waiting, call));
    return false;
}

/* -- the handler */

static dlock_step enter_waiting(void *arg, dlock_call *pub) {
    call *call = call_of(pub);
    loop_lock(call->loop);
    bool is_answered = pub->operation == DLOCK_ACQUIRING ? go_on_acquiring(arg, call)
                                                         : release_or_extend(arg, call);
    loop_unlock(call->loop);
    return is_answered ? DLOCK_ANSWER : DLOCK_SUSPEND;
}

dlock_handler waiting_handler(waiting *waiting) {
    return (dlock_handler){
        .name = "waiting", .order = DLOCK_ORDER_WAITING, .arg = waiting, .enter = enter_waiting};
}
