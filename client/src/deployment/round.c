/* SPDX-License-Identifier: BSD-3-Clause */
/* round.c - see redlock.h.
 *
 *   round_start -> ask each chosen server -> on_reply, on_done -> count -> proceed
 *
 *   proceed   the pending replies can still decide: wait for them
 *             they cannot, but servers that were skipped could: ask these too
 *             decided: finish, at once or a moment later
 *   finish    abandon the stragglers, tell the owner
 *
 * Invariants: a request is in flight while its vote is VOTE_PENDING, and not otherwise. A vote is
 * counted in on_done of its request, never in on_reply: the connection is through with the request
 * then, which may be sent again. The owner is told last, since it may begin another round, or free
 * the memory. */
#include "deployment/redlock.h"

/* -- what a majority says */

size_t votes_quorum(size_t voters) {
    return voters / 2 + 1;
}

void votes_add(votes *votes, dlock_status reply, bool is_transient) {
    if (reply == DLOCK_OK) {
        votes->yes++;
    } else if (reply == DLOCK_BUSY || reply == DLOCK_LOST) {
        votes->no++;
    } else if (reply == DLOCK_IN_DOUBT) {
        votes->unanswered++;
    } else if (reply == DLOCK_UNREACHABLE) {
        votes->unreachable++;
    } else {
        votes->failed++;
        if (!is_transient && votes->lasting++ == 0) votes->failure = reply;
    }
}

/* With so many servers that do not say yes, a majority is impossible. */
static size_t blocking(const votes *votes) {
    return votes->voters - votes_quorum(votes->voters) + 1;
}

dlock_status votes_result(const votes *votes, dlock_status no) {
    if (votes->yes >= votes_quorum(votes->voters)) return DLOCK_OK;
    if (votes->no >= blocking(votes)) return no;
    if (votes->lasting >= blocking(votes)) return votes->failure;
    return DLOCK_NO_QUORUM;
}

bool votes_are_open(const votes *votes, dlock_status no, size_t more) {
    if (more == 0 || votes_result(votes, no) != DLOCK_NO_QUORUM) return false;
    return votes->yes + more >= votes_quorum(votes->voters) || votes->no + more >= blocking(votes);
}

bool votes_are_split(const votes *votes) {
    size_t quorum = votes_quorum(votes->voters);
    return votes->yes > 0 && votes->yes < quorum && votes->yes + votes->no >= quorum;
}

static void put_count(char *text, size_t size, size_t count, const char *meaning) {
    char digits[TEXT_NUMBER_SIZE];
    if (count == 0) return;
    text_put_number(digits, count);
    if (text[0] != '\0') text_append(text, size, ", ");
    text_append(text, size, digits);
    text_append(text, size, " ");
    text_append(text, size, meaning);
}

void votes_describe(const votes *votes, const char *yes, const char *no, char *text, size_t size) {
    size_t counted =
        votes->yes + votes->no + votes->unanswered + votes->unreachable + votes->failed;
    text[0] = '\0';
    put_count(text, size, votes->yes, yes);
    put_count(text, size, votes->no, no);
    put_count(text, size, votes->unanswered, "unanswered");
    put_count(text, size, votes->unreachable, "unreachable");
    put_count(text, size, votes->failed, "failed");
    put_count(text, size, votes->voters - counted, "skipped");
}

/* -- a round */

static bool is_acquire(const round *round) {
    return round->attempt->operation == DLOCK_ACQUIRING;
}

static dlock_status no_of(const round *round) {
    return is_acquire(round) ? DLOCK_BUSY : DLOCK_LOST;
}

static dlock_status result_of(const round *round) {
    return votes_result(&round->votes, no_of(round));
}

static size_t count_votes(const round *round, int state) {
    size_t count = 0;
    round_each_vote(const round_vote, vote, round)
        count += (int)vote->state == state;
    return count;
}

static void note_vote_failure(const round_vote *vote, const char *cause) {
    char *failures = vote->round->failures, text[CAUSE_SIZE];
    cause_write(text, vote->server, cause);
    text_append(failures, CAUSE_SIZE, failures[0] == '\0' ? ": " : "; ");
    text_append(failures, CAUSE_SIZE, text);
}

bool vote_send(const round_vote *vote, dlock_operation operation, request *request) {
    lock_words words = {.operation = operation, .fence = vote->round->plan.fence};
    return attempt_send(vote->round->attempt, &words, false, vote->server, vote->conn, request);
}

/* -- the end of a round */

/* connection_abandon() drops the command of a straggler whose connection is not made yet. That
 * command is then queued once more, without a reply that anybody waits for, if the round was a
 * success or a release: every server shall hold the lock then, or release it. If the round has no
 * quorum, its cause names the straggler. */
static void abandon_straggler(round_vote *vote, dlock_status result) {
    round *round = vote->round;
    connection *conn = vote->request.conn;
    bool was_sent = connection_abandon(&vote->request), is_yes = result == DLOCK_OK;
    dlock_operation operation = round->attempt->operation;
    bool must_send = is_yes || operation == DLOCK_RELEASING;
    vote->state = VOTE_STRAGGLER;
    if (conn != NULL && connection_is_ready(conn)) vote->conn = conn;
    bool is_queued = !was_sent && must_send;
    if (is_queued) vote_send(vote, operation, NULL);
    bool will_be_sent = is_queued && vote->conn != NULL;
    if (is_acquire(round) && (was_sent || will_be_sent)) vote->fate = TOKEN_IN_DOUBT;
    if (is_acquire(round) && is_queued) {
        vote->is_queued = true;
        vote->ready_count = vote->server->endpoint.ready_count;
    }
    if (is_yes) return;
    votes_add(&round->votes, was_sent ? DLOCK_IN_DOUBT : DLOCK_UNREACHABLE, true);
    if (result == DLOCK_NO_QUORUM)
        note_vote_failure(vote, was_sent ? "no reply in time" : "no connection in time");
}

void round_stop(round *round, dlock_status result) {
    loop_clear_timer(round->redlock->base.loop, &round->timer);
    round_each_vote(round_vote, vote, round)
        if (vote->state == VOTE_PENDING) abandon_straggler(vote, result);
}

static void finish_round(round *round) {
    round_stop(round, result_of(round));
    round->plan.on_done(round, result_of(round));
}

static void set_round_timer(round *round, int64_t due_us) {
    loop_set_timer(round->redlock->base.loop, &round->timer,
                   deadline_earlier(due_us, round->plan.limit_us));
}

/* When to look again for replies; a request that waits for a connection has more time. */
static int64_t awaited_until_us(const round *round, int64_t now_us) {
    int64_t until_us = now_us;
    round_each_vote(const round_vote, vote, round) {
        if (vote->state != VOTE_PENDING) continue;
        int64_t sent_us = vote->request.sent_us == 0 ? now_us : vote->request.sent_us;
        int64_t due_us = deadline_after_ms(sent_us, round->redlock->base.io_timeout_ms);
        if (due_us > until_us) until_us = due_us;
    }
    return until_us;
}

static void on_round_due(loop_timer *timer) {
    round *round = container_of(timer, struct round, timer);
    int64_t now_us = round_now_us(round), until_us = awaited_until_us(round, now_us);
    bool is_over = round->is_decided || now_us >= round->plan.limit_us || now_us >= until_us;
    if (is_over)
        finish_round(round);
    else
        set_round_timer(round, until_us);
}

/* -- votes */

static void ask(round_vote *vote);

/* Could this many more replies change the result, or make a better majority? */
static bool is_open(const round *round, size_t more) {
    bool (*is_enough)(const struct round *) = round->plan.is_enough;
    if (round->plan.awaits_all) return more > 0;
    if (votes_are_open(&round->votes, no_of(round), more)) return true;
    bool is_yes = result_of(round) == DLOCK_OK;
    return more > 0 && is_yes && is_enough != NULL && !is_enough(round);
}

static void proceed(round *round) {
    size_t pending = count_votes(round, VOTE_PENDING);
    if (is_open(round, pending)) return;
    size_t skipped = round->plan.asks_others ? count_votes(round, VOTE_NONE) : 0;
    if (skipped > 0 && is_open(round, pending + skipped)) {
        round_each_vote(round_vote, vote, round)
            if (vote->state == VOTE_NONE) ask(vote);
        return;
    }
    int64_t linger_us = result_of(round) == DLOCK_OK ? round->plan.linger_us : ROUND_LINGER_US;
    if (pending == 0 || linger_us == 0) {
        finish_round(round);
    } else if (!round->is_decided) {
        round->is_decided = true;
        set_round_timer(round, round_now_us(round) + linger_us);
    }
}

static void read_vote(const round_vote *vote, const reply *reply, verdict *verdict) {
    const attempt *attempt = vote->round->attempt;
    if (is_acquire(vote->round)) {
        attempt->prepared.protocol->read_acquire(verdict, reply);
    } else if (attempt->operation == DLOCK_EXTENDING) {
        read_holder_reply(verdict, reply);
    } else {
        read_released_reply(verdict, attempt->name_count, reply);
        attempt_release_each(attempt, reply, false, vote->server);
    }
}

/* A server whose reply makes no sense may have done anything. An error leaves an earlier grant as
 * it was, and so does the loss of one of several names. */
static void note_fate(round_vote *vote, dlock_status status) {
    const round *round = vote->round;
    dlock_operation operation = round->attempt->operation;
    bool is_part = operation == DLOCK_EXTENDING && attempt_has_several(round->attempt);
    bool is_held = status == DLOCK_OK && operation != DLOCK_RELEASING;
    bool is_unheld = operation == DLOCK_RELEASING ? is_withdrawn(status) : status == no_of(round);
    if (is_held || status == DLOCK_PROTOCOL) vote->fate = TOKEN_HELD;
    if (is_unheld && !is_part) vote->fate = TOKEN_UNHELD;
    if (is_held || (is_unheld && !is_part)) vote->is_queued = false;
}

/* Several names are extended by a command for each: the first failure is the vote. */
static void on_vote_reply(request *request, int index, const reply *reply) {
    round_vote *vote = container_of(request, round_vote, request);
    round *round = vote->round;
    verdict verdict = {0};
    if (index > 0 && vote->status != DLOCK_OK) return;
    read_vote(vote, reply, &verdict);
    vote->status = verdict.status;
    vote->is_transient = verdict.is_transient;
    vote->fence = verdict.fence;
    note_fate(vote, verdict.status);
    if (verdict.hint == HINT_FENCE_REFUSED) round->fence_refusals++;
    if (vote->status == DLOCK_OK && round->plan.is_fence_needed &&
        vote->fence < round->plan.fence) {
        vote->status = DLOCK_REFUSED;
        vote->is_transient = true;
        note_vote_failure(vote, "a smaller fence");
    } else if (verdict.status != DLOCK_OK && verdict.status != no_of(round)) {
        note_vote_failure(vote, verdict.cause);
    }
}

/* The request is done: cause, of anything but DLOCK_OK. */
static void count_vote(round_vote *vote, dlock_status status, const char *cause) {
    const request *request = &vote->request;
    if (status != DLOCK_OK) {
        vote->status = status;
        vote->is_transient = status == DLOCK_NO_MEMORY;
        bool was_sent = status == DLOCK_PROTOCOL && request->sent_us != 0;
        if (was_sent || status == DLOCK_IN_DOUBT) vote->fate = TOKEN_IN_DOUBT;
        note_vote_failure(vote, cause);
    }
    if (vote->sent_us == 0) vote->sent_us = request->sent_us;
    vote->state = VOTE_COUNTED;
    votes_add(&vote->round->votes, vote->status, vote->is_transient);
}

static void on_vote_done(request *request, dlock_status status, const char *cause) {
    round_vote *vote = container_of(request, round_vote, request);
    count_vote(vote, status, cause);
    proceed(vote->round);
}

/* If nothing can be sent to any server, the timer ends the round. */
static void ask(round_vote *vote) {
    vote->request = (request){.on_reply = on_vote_reply, .on_done = on_vote_done};
    vote->state = VOTE_PENDING;
    if (!vote_send(vote, vote->round->attempt->operation, &vote->request))
        count_vote(vote, DLOCK_NO_MEMORY, "no memory");
}

/* -- the owner's */

/* A lock that was handed on has the token of another attempt, which knew where the lock is held. */
void round_init(round *round, redlock *redlock, attempt *attempt) {
    bool is_same_token = strcmp(round->token, attempt->token) == 0;
    memset(round, 0, offsetof(struct round, token));
    text_copy(round->token, sizeof(round->token), attempt->token);
    round->redlock = redlock;
    round->attempt = attempt;
    round->timer.on_due = on_round_due;
    for (size_t i = 0; i < redlock->count; i++) {
        round_vote *vote = &round->server_votes[i];
        *vote = (round_vote){.round = round,
                             .server = redlock->servers[i],
                             .fate = is_same_token ? vote->fate : attempt->fate,
                             .is_queued = is_same_token && vote->is_queued,
                             .ready_count = vote->ready_count};
    }
}

void round_start(round *round, const round_plan *plan, const bool is_chosen[], size_t yes) {
    round->plan = *plan;
    round->votes = (votes){.voters = round->redlock->count, .yes = yes};
    round->is_decided = false;
    round->fence_refusals = 0;
    round->failures[0] = '\0';
    for (size_t i = 0; i < round->redlock->count; i++) {
        round_vote *vote = &round->server_votes[i];
        vote->conn = NULL; /* it may end before a RELEASE */
        if (is_chosen == NULL || is_chosen[i]) ask(vote);
    }
    set_round_timer(round,
                    deadline_after_ms(round_now_us(round), round->redlock->base.io_timeout_ms));
}

/* Has every server let go of the lock? */
static bool has_all(const round *round) {
    size_t count = 0;
    round_each_vote(const round_vote, vote, round)
        count += vote->state == VOTE_COUNTED && is_withdrawn(vote->status);
    return count == round->redlock->count;
}

/* The lease of a majority began when the first of its requests was sent. */
void round_end(round *round, dlock_status status, const char *cause) {
    attempt *attempt = round->attempt;
    char text[DLOCK_CAUSE_SIZE] = "";
    if (status == DLOCK_OK) attempt->asked_us = DEADLINE_NEVER;
    round_each_vote(const round_vote, vote, round)
        if (status == DLOCK_OK && vote_is_yes(vote))
            attempt->asked_us = deadline_earlier(attempt->asked_us, vote->sent_us);
    if (status != DLOCK_OK && cause == NULL) {
        votes_describe(&round->votes, "ok", is_acquire(round) ? "busy" : "not held", text,
                       sizeof(text));
        text_append(text, sizeof(text), round->failures);
    }
    bool is_transient = status == DLOCK_NO_QUORUM || (round->plan.awaits_all && !has_all(round));
    attempt_set_result(attempt, status, is_transient, cause == NULL ? text : cause);
    attempt->on_done(attempt);
}
