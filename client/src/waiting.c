/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting.c - see waiting.h. */
#include "waiting.h"

#include "deadline.h"
#include "random.h"
#include "text.h"
#include "validity.h"

/* How long the server is let to wait in one request. Who asks again queues up again at the end, so
 * it is long; that a server is gone is noticed by the connection before. */
enum { SLICE_MS = 30000, RELEASE_PAUSE_MS = 10 };

/* A grant after a wait of more than this part of the lease is renewed at once: the lease is counted
 * from before the request was sent, and would be over too soon. */
enum { LONG_WAIT_PARTS = 10 };

static int64_t now_of(const environment *env) {
    return env->now_us(env);
}

static bool is_valid(const claim *of, const environment *env) {
    return now_of(env) < validity_end_us(of->call.asked_us, of->call.lease_ms);
}

/* The service said yes. DLOCK_OK: and there is enough left of it. */
static dlock_status confirm(backend *to, claim *of, const waiting_rule *rule, int64_t limit_us,
                            const environment *env) {
    int64_t granted_us = of->call.asked_us;
    int64_t waited_us = now_of(env) - granted_us;
    if (waited_us * LONG_WAIT_PARTS > (int64_t)of->call.lease_ms * 1000) {
        int64_t answered_by_us = deadline_after_ms(now_of(env), rule->io_timeout_ms);
        dlock_status status = to->table->extend(to, of, deadline_earlier(limit_us, answered_by_us));
        if (status != DLOCK_OK) of->call.asked_us = granted_us;
        if (status == DLOCK_LOST) return DLOCK_BUSY;
    }
    if (is_valid(of, env)) return DLOCK_OK;
    of->is_sent = of->is_passing = true;
    text_copy(of->call.cause, sizeof(of->call.cause), "the lease had ended before the answer came");
    return DLOCK_LOST;
}

static dlock_status attempt(backend *to, claim *of, const waiting_rule *rule,
                            const environment *env) {
    int64_t begun_us = now_of(env), left_us = deadline_left_us(of->call.deadline_us, begun_us);
    bool is_waited_for = rule->is_server_asked_to_wait && left_us > 0;
    int64_t from_us = left_us > 0 ? of->call.deadline_us : begun_us;
    int64_t limit_us = deadline_after_ms(from_us, rule->io_timeout_ms);
    if (of->call.deadline_us == DEADLINE_NEVER) limit_us = DEADLINE_NEVER;
    if (of->call.attempts == 0) of->call.remote_us = begun_us;
    if (of->call.attempts < UINT32_MAX) of->call.attempts++;
    of->is_passing = false;
    dlock_status status = to->table->acquire(to, of, is_waited_for ? SLICE_MS : 0, limit_us);
    return status == DLOCK_OK ? confirm(to, of, rule, limit_us, env) : status;
}

static dlock_status give_up(const claim *of, dlock_status last, bool is_only_try) {
    if (last == DLOCK_BUSY) return is_only_try ? DLOCK_BUSY : DLOCK_TIMEOUT;
    return last == DLOCK_UNREACHABLE && of->is_sent ? DLOCK_IN_DOUBT : last;
}

/* The pause before the next attempt; none if the service has waited for us. */
static int64_t pause_us(const claim *of, const waiting_rule *rule, dlock_status last,
                        int64_t taken_us, int64_t left_us, const environment *env) {
    bool has_waited = last == DLOCK_BUSY && rule->is_server_asked_to_wait &&
                      taken_us >= (int64_t)rule->pause.min_ms * 1000;
    if (has_waited) return 0;
    return backoff_pause_us(&rule->pause, of->call.attempts, env->chance(env), left_us);
}

static dlock_status cancel(claim *of) {
    text_copy(of->call.cause, sizeof(of->call.cause), "canceled");
    return DLOCK_CANCELED;
}

dlock_status waiting_acquire(backend *to, claim *of, const waiting_rule *rule,
                             const environment *env) {
    bool is_only_try = of->call.deadline_us <= of->call.started_us;
    dlock_status before = DLOCK_OK;
    char cause_before[DLOCK_CAUSE_SIZE] = "";
    if (interrupt_is_requested(&of->stop)) return cancel(of);
    for (;;) {
        int64_t begun_us = now_of(env);
        dlock_status status = attempt(to, of, rule, env);
        /* That the time is over says less than what was said before. */
        bool is_late = now_of(env) >= of->call.deadline_us;
        bool is_vague = status == DLOCK_UNREACHABLE || status == DLOCK_NO_QUORUM;
        if (is_vague && is_late && before != DLOCK_OK) {
            status = before;
            of->is_passing = true;
            text_copy(of->call.cause, sizeof(of->call.cause), cause_before);
        }
        before = status;
        text_copy(cause_before, sizeof(cause_before), of->call.cause);
        bool is_final = status != DLOCK_BUSY && !of->is_passing;
        if (status == DLOCK_OK) return status;
        if (is_final) return give_up(of, status, is_only_try);
        int64_t now_us = now_of(env), left_us = deadline_left_us(of->call.deadline_us, now_us);
        if (is_only_try || left_us == 0) return give_up(of, status, is_only_try);
        int64_t resume_us = now_us + pause_us(of, rule, status, now_us - begun_us, left_us, env);
        while (now_of(env) < resume_us && !interrupt_is_requested(&of->stop)) {
            env->sleep_until(env, resume_us, of->stop.fd);
            interrupt_drain(&of->stop);
        }
        if (interrupt_is_requested(&of->stop)) return cancel(of);
        if (now_of(env) >= of->call.deadline_us) return give_up(of, status, is_only_try);
        /* What was sent may arrive late, on a connection that is closed by then: with the same
         * token it would take the session there. What it gets ends with that connection. */
        if (of->link != NULL && of->is_sent && !of->is_token_chosen) token_vary(of->call.token);
    }
}

dlock_status waiting_release(backend *to, claim *of, const waiting_rule *rule,
                             const environment *env) {
    int64_t limit_us = deadline_after_ms(now_of(env), rule->io_timeout_ms);
    bool is_in_doubt = false, was_ours = is_valid(of, env);
    for (;;) {
        of->is_passing = false;
        dlock_status status = to->table->release(to, of, limit_us);
        if (status == DLOCK_LOST && is_in_doubt && was_ours)
            return DLOCK_OK; /* it was the first one */
        if (status == DLOCK_IN_DOUBT || status == DLOCK_NO_QUORUM) is_in_doubt = true;
        if (status == DLOCK_UNREACHABLE && is_in_doubt) status = DLOCK_IN_DOUBT;
        if (!of->is_passing) return status;
        int64_t resume_us = deadline_after_ms(now_of(env), RELEASE_PAUSE_MS);
        if (resume_us >= limit_us) return status;
        while (now_of(env) < resume_us)
            env->sleep_until(env, resume_us, -1);
    }
}
