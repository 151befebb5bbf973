/* SPDX-License-Identifier: BSD-3-Clause */
/* routed_send.c - see routed.h.
 *
 * All commands travel on the command connection, but the EXTEND of acknowledgement.h. An ACQUIRE
 * that waits, or that ties its lock to the session, names the session, which has to be open by
 * then. After ASK, an ASKING precedes the command. */
#include "deployment/routed.h"

enum { DAY_MS = 24 * 60 * 60 * 1000 };

/* How long the server may let the request wait. */
static uint32_t wait_left_ms(const attempt *attempt, int64_t now_us) {
    if (attempt->operation != DLOCK_ACQUIRING || attempt->wait_until_us <= now_us) return 0;
    int64_t left_us = deadline_left_us(attempt->wait_until_us, now_us);
    int64_t left_ms = left_us / 1000 + (left_us % 1000 != 0);
    return left_ms < DAY_MS ? (uint32_t)left_ms : DAY_MS;
}

/* -- the session */

static guest *guest_of(routed_run *run) {
    tie *tie = run_tie(run);
    return tie != NULL ? &tie->guest : &run->guest;
}

/* False: the session is not open yet. */
static bool join_session(routed_run *run) {
    guest *guest = guest_of(run);
    guest->table = &run_guests;
    guest->arg = run;
    guest->name = run->attempt->name;
    guest->name_count = run->attempt->name_count;
    guest->token = run->attempt->token;
    return presence_join(run->router, run->server, guest);
}

/* A lock that was taken, or kept, stays tied. */
void run_leave_session(routed_run *run) {
    tie *tie = run_tie(run);
    const attempt *attempt = run->attempt;
    bool is_held = attempt->is_background || attempt->operation == DLOCK_EXTENDING;
    bool is_kept = is_held || attempt->status == DLOCK_OK;
    presence_leave(&run->guest);
    if (tie == NULL || tie->guest.presence == NULL) return;
    if (is_kept)
        tie->guest.table = &tie_table;
    else
        presence_leave(&tie->guest);
}

/* -- requests */

/* A server that does not reply in time hangs. */
static void limit_reply(request *request) {
    routed_run *run = container_of(request, routed_run, request);
    int64_t limit_ms = run->router->base.io_timeout_ms;
    if (run->phase == RUN_REPLICAS) limit_ms += run->attempt->terms.replica_timeout_ms;
    int64_t due_us = deadline_after_ms(request->sent_us, limit_ms);
    loop_set_timer(run->router->base.loop, &run->timer, deadline_earlier(run->limit_us, due_us));
}

static void add_session(routed_run *run, lock_words *words) {
    const tie *tie = run_tie(run);
    if (tie == NULL && words->wait_ms == 0) return;
    words->via = presence_id(guest_of(run));
    words->is_tied = tie != NULL;
    words->is_endless = tie != NULL && tie->is_endless;
    words->has_grace = tie != NULL && tie->is_momentary;
    if (words->is_endless) words->operation = DLOCK_ACQUIRING;
}

/* conn NULL: the command connection. False: no memory. */
static bool send_command(routed_run *run, lock_words words, connection *conn) {
    words.has_hash = run->phase == RUN_REQUEST && !run->needs_script;
    run->request.on_sent = limit_reply;
    loop_set_timer(run->router->base.loop, &run->timer, run->limit_us);
    return attempt_send(run->attempt, &words, run->is_asking, run->server, conn, &run->request);
}

/* -- replies */

/* The token holds the lock with another fence, or not at all: the lock was lost in between. */
static void judge_kept(routed_run *run, verdict *verdict) {
    bool is_other = verdict->status == DLOCK_OK && verdict->fence != run->attempt->fence;
    run->is_granted = is_other;
    if (is_other || verdict->status == DLOCK_BUSY)
        verdict_set(verdict, DLOCK_LOST, "the server says that the token does not hold it");
}

static void read_release(routed_run *run, const reply *reply, verdict *verdict) {
    const attempt *attempt = run->attempt;
    read_released_reply(verdict, attempt->prepared.protocol, attempt->name_count, reply);
    attempt_release_each(attempt, reply, run->server);
}

static void read_lock_reply(routed_run *run, const reply *reply, verdict *verdict) {
    attempt *attempt = run->attempt;
    const lock_protocol *protocol = attempt->prepared.protocol;
    bool is_acquire = attempt->operation == DLOCK_ACQUIRING;
    const tie *tie = run_tie(run);
    if (is_acquire || tie != NULL)
        protocol->read_acquire(verdict, reply);
    else if (attempt->operation == DLOCK_RELEASING)
        read_release(run, reply, verdict);
    else
        protocol->read_holder(verdict, reply);
    run->is_granted = (verdict->status == DLOCK_PROTOCOL && reply->kind != REPLY_ERROR) ||
                      (is_acquire && reply_begins_with(reply, TOKEN_HOLDS_SOME));
    run->is_no_script = verdict->is_no_script;
    run->is_no_session = verdict->is_no_session;
    run->is_run_refused = verdict->is_run_refused;
    run->is_queued = verdict->is_queued;
    if (!is_acquire && tie != NULL)
        judge_kept(run, verdict);
    else if (is_acquire)
        attempt->fence = verdict->fence;
}

/* To the EXTEND before Redis's WAIT. */
static void read_written_reply(routed_run *run, const reply *reply) {
    attempt *attempt = run->attempt;
    verdict verdict;
    attempt->prepared.protocol->read_holder(&verdict, reply);
    if (verdict.status == DLOCK_LOST && attempt->operation == DLOCK_ACQUIRING)
        verdict_set(&verdict, DLOCK_NO_REPLICAS, "it was lost before replicas had it");
    run->is_granted = false;
    attempt_set_result(attempt, verdict.status, verdict.is_transient, verdict.cause);
}

/* Several names are extended by a command for each: the first failure is the result. */
static void read_reply(request *request, int index, const reply *reply) {
    routed_run *run = container_of(request, routed_run, request);
    attempt *attempt = run->attempt;
    verdict verdict;
    if (run->is_asking && index % 2 == 0) return;
    bool is_first = index == run->is_asking;
    if (!is_first && attempt->status != DLOCK_OK) return;
    if (run->phase == RUN_REPLICAS) {
        read_written_reply(run, reply);
    } else if (run->phase == RUN_UNDO) {
        read_release(run, reply, &verdict);
        run->is_granted = verdict.status != DLOCK_OK && verdict.status != DLOCK_LOST;
    } else {
        if (attempt->guarded.words != NULL)
            read_guard_reply(&verdict, attempt->guarded.reply, reply);
        else
            read_lock_reply(run, reply, &verdict);
        attempt_set_result(attempt, verdict.status, verdict.is_transient, verdict.cause);
    }
}

/* -- public */

bool run_send(routed_run *run) {
    attempt *attempt = run->attempt;
    loop *loop = run->router->base.loop;
    int64_t now_us = loop_now_us(loop);
    lock_words words = {.operation = attempt->operation};
    bool is_busy = run->was_busy || busy_names_has(&run->router->busy, attempt->name, now_us);
    if (is_busy) words.wait_ms = wait_left_ms(attempt, now_us);
    run->is_waiting = words.wait_ms > 0;
    run->request.on_reply = read_reply;
    run->is_granted = run->is_queued = run->is_no_session = run->is_session_new = false;
    bool needs_session = run->is_waiting || run_tie(run) != NULL;
    if (needs_session && !join_session(run)) {
        run->phase = RUN_SESSION;
        loop_set_timer(loop, &run->timer, run->limit_us);
        return guest_of(run)->presence != NULL; /* else there is no memory for a session */
    }
    run->phase = RUN_REQUEST;
    add_session(run, &words);
    if (!send_command(run, words, NULL)) return false;
    if (attempt->on_sent != NULL) attempt->on_sent(attempt);
    return true;
}

/* Without memory, the run ends as if no replica had replied. */
static void send_written(acknowledgement *ack, connection *conn) {
    routed_run *run = container_of(ack, routed_run, ack);
    if (!send_command(run, (lock_words){.operation = DLOCK_EXTENDING}, conn))
        loop_set_timer(run->router->base.loop, &run->timer, 0);
}

void run_await_replicas(routed_run *run) {
    const attempt_terms *terms = &run->attempt->terms;
    run->phase = RUN_REPLICAS;
    run->ack = (acknowledgement){.min_replicas = terms->min_replicas,
                                 .timeout_ms = terms->replica_timeout_ms,
                                 .on_turn = send_written,
                                 .on_done = run_take_acknowledgement};
    loop_set_timer(run->router->base.loop, &run->timer, run->limit_us);
    if (!acknowledgement_start(&run->ack, run->server))
        loop_set_timer(run->router->base.loop, &run->timer, 0);
}

bool run_send_release(routed_run *run) {
    run->phase = RUN_UNDO;
    return send_command(run, (lock_words){.operation = DLOCK_RELEASING}, NULL);
}
