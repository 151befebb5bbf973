/* SPDX-License-Identifier: BSD-3-Clause */
/* redlock.c - see redlock.h.
 *
 *   acquire   the same name and token to all nodes at once. Held if a majority says yes; else what
 *             was granted is given back before the next attempt
 *   fence     the largest of those that were granted, once a majority of nodes counts on from there
 *   extend, release   to all nodes at once; a majority decides
 *
 * Invariants: a token that may still be granted or given back by something under way is not asked
 * for again: the next attempt has a new one, unless the caller chose it. What is sent and not
 * answered in time is undone behind it, on the same connection. Who is not waited for, because a
 * majority has said yes, hears of the same token on the same connection until it has answered, so
 * that a release cannot overtake the acquire. */
#include "redlock.h"

#include "batches.h"
#include "deadline.h"
#include "nodes.h"
#include "question.h"
#include "random.h"
#include "votes.h"
#include <stdlib.h>

/* By so much a fence may be ahead of the clock that it is asked for by. If it is more than the way
 * to the nodes takes, and more than clocks differ, all give the same one and need not be raised. */
enum { FENCE_AHEAD_US = 10000 };

typedef struct redlock {
    backend base;
    const environment *env;
    atomic_uint_least64_t last_fence;
    atomic_bool is_clock_wrong; /* far ahead of the clock of a node */
    nodes all;
} redlock;

/* A question to all nodes, and what came of it. */
typedef struct ballot {
    question asked[NODES_MAX];
    nodes_chosen answered; /* or not, but were asked */
    votes counted;
    verdict said[NODES_MAX]; /* of those who were asked; its cause only until the next question */
} ballot;

static int64_t now_of(const redlock *self) {
    return self->env->now_us(self->env);
}

static int64_t one_timeout(const redlock *self, int64_t limit_us) {
    int64_t io_us = deadline_after_ms(now_of(self), nodes_io_timeout_ms(&self->all));
    return deadline_earlier(limit_us, io_us);
}

/* An answer that comes later is of no use. */
static int64_t half_a_lease(const redlock *self, const claim *of) {
    return now_of(self) + (int64_t)of->call.lease_ms * 500;
}

/* -- a round */

static bool is_yes(const exchange *x) {
    return question_read(x->asker).status == DLOCK_OK;
}

/* The same for all that a token is varied to: what is said about one may give back another. */
static uint64_t subject_of(const dlock_call *call) {
    char base[DLOCK_TOKEN_SIZE];
    text_copy(base, sizeof(base), call->token);
    base[token_base_length(base)] = '\0';
    return text_hash(base) ^ text_hash(call->name) * 31;
}

static void ask(redlock *self, ballot *on, const nodes_chosen *chosen, size_t suffices,
                const interrupt *stop) {
    exchange *questions[NODES_MAX];
    uint64_t subject = subject_of(&on->asked[0].of->call);
    for (size_t i = 0; i < self->all.count; i++) {
        exchange *x = questions[i] = &on->asked[i].x;
        x->is_urgent = true; /* nobody keeps a connection to wait for a lock */
        x->is_yes = is_yes;
        x->subject = subject;
    }
    nodes_ask(&self->all, chosen, questions, suffices, stop);
}

static void ask_and_count(redlock *self, ballot *on, const nodes_chosen *chosen, size_t suffices,
                          const interrupt *stop) {
    ask(self, on, chosen, suffices, stop);
    for (size_t i = 0; i < self->all.count; i++) {
        if (!chosen->is_in[i]) continue;
        on->answered.is_in[i] = true;
        on->said[i] = question_read(&on->asked[i]);
        votes_add(&on->counted, on->said[i].status, on->said[i].is_passing);
    }
}

static void begin(const redlock *self, ballot *on) {
    on->answered = (nodes_chosen){0};
    on->counted = (votes){.voters = self->all.count};
}

/* Those that are left alone are asked too if it is up to them. A majority is not kept waiting by
 * the others: what they say may come later. */
static dlock_status vote(redlock *self, ballot *on, dlock_status no, const interrupt *stop) {
    size_t quorum = votes_quorum(self->all.count);
    nodes_chosen chosen = nodes_choose(&self->all, quorum);
    ask_and_count(self, on, &chosen, quorum, stop);
    if (votes_are_open(&on->counted, no)) {
        nodes_chosen others = nodes_others(&self->all, &chosen);
        ask_and_count(self, on, &others, quorum - on->counted.yes, stop);
    }
    return votes_result(&on->counted, no);
}

/* The earliest lease of those that make up the majority. */
static int64_t asked_us(const redlock *self, const ballot *on) {
    int64_t first_us = DEADLINE_NEVER;
    for (size_t i = 0; i < self->all.count; i++)
        if (on->answered.is_in[i] && on->said[i].status == DLOCK_OK)
            first_us = deadline_earlier(first_us, on->said[i].asked_us);
    return first_us;
}

/* "2 ok, 2 busy, 1 unreachable: 10.0.0.3:6379: Connection refused" */
static void tell_cause(const redlock *self, const ballot *on, const char *no, claim *of) {
    char *text = of->call.cause, where[DLOCK_CAUSE_SIZE / 4];
    const char *mark = ": ";
    votes_describe(&on->counted, "ok", no, text, DLOCK_CAUSE_SIZE);
    for (size_t i = 0; i < self->all.count; i++) {
        dlock_status status = on->answered.is_in[i] ? on->said[i].status : DLOCK_OK;
        if (status == DLOCK_OK || status == DLOCK_BUSY || status == DLOCK_LOST) continue;
        text_append(text, DLOCK_CAUSE_SIZE, mark);
        if (on->asked[i].x.status == DLOCK_OK) { /* an answer does not say where it is from */
            server_describe(self->all.each[i].at, where, sizeof(where));
            text_append(text, DLOCK_CAUSE_SIZE, where);
            text_append(text, DLOCK_CAUSE_SIZE, ": ");
        }
        text_append(text, DLOCK_CAUSE_SIZE, on->said[i].cause);
        mark = "; ";
    }
}

static dlock_status tell(const redlock *self, const ballot *on, dlock_status status, const char *no,
                         claim *of) {
    of->is_passing = status == DLOCK_NO_QUORUM;
    of->call.cause[0] = '\0';
    if (status == DLOCK_OK)
        of->call.asked_us = asked_us(self, on);
    else
        tell_cause(self, on, no, of);
    return status;
}

/* -- giving back */

/* The others are told, if there is a connection, but not waited for. */
static void prepare_release(const redlock *self, ballot *on, const claim *of,
                            const nodes_chosen *waited_for, int64_t limit_us) {
    for (size_t i = 0; i < self->all.count; i++) {
        exchange *x = &on->asked[i].x;
        question_release(&on->asked[i], of, nodes_io_timeout_ms(&self->all), limit_us);
        x->on_sent = NULL; /* the next one would come before some of them have it */
        if (waited_for->is_in[i]) continue;
        x->is_for_free = true;
        x->answer_in_us = 0;
    }
}

/* What an acquire got that came to nothing. True: nobody may hold it any more. */
static bool undo(redlock *self, ballot *on, const claim *of, int64_t limit_us) {
    nodes_chosen holders = {0}, told = {0};
    interrupt unstoppable = {.fd = of->stop.fd};
    bool is_undone = true, is_needed = false;
    for (size_t i = 0; i < self->all.count; i++) {
        if (!on->answered.is_in[i]) continue;
        holders.is_in[i] = on->said[i].status == DLOCK_OK;
        told.is_in[i] = holders.is_in[i] || on->said[i].may_hold;
        is_needed = is_needed || told.is_in[i];
    }
    if (!is_needed) return true;
    prepare_release(self, on, of, &holders, one_timeout(self, limit_us));
    ask(self, on, &told, 0, &unstoppable);
    for (size_t i = 0; i < self->all.count; i++)
        if (told.is_in[i] && on->asked[i].x.status != DLOCK_OK) is_undone = false;
    return is_undone;
}

static dlock_status release(backend *base, claim *of, int64_t limit_us) {
    redlock *self = (redlock *)base;
    ballot on;
    begin(self, &on);
    size_t quorum = votes_quorum(self->all.count);
    interrupt unstoppable = {.fd = of->stop.fd}; /* who has not heard of it would keep the lock */
    nodes_chosen waited_for = nodes_choose(&self->all, quorum);
    nodes_chosen nobody = {0}, everybody = nodes_others(&self->all, &nobody);
    prepare_release(self, &on, of, &waited_for, limit_us);
    ask_and_count(self, &on, &everybody, quorum, &unstoppable);
    return tell(self, &on, votes_result(&on.counted, DLOCK_LOST), "not held", of);
}

/* -- acquire */

/* No node should have given a larger one by the time it gets this. 0: none is asked for. */
static uint64_t next_fence(redlock *self) {
    if (atomic_load(&self->is_clock_wrong)) return 0;
    uint64_t last = atomic_load(&self->last_fence);
    uint64_t ahead = (uint64_t)self->env->unix_us(self->env) + FENCE_AHEAD_US;
    return ahead > last ? ahead : last + 1;
}

static void note_fence(redlock *self, uint64_t fence) {
    uint64_t last = atomic_load(&self->last_fence);
    while (fence > last && !atomic_compare_exchange_weak(&self->last_fence, &last, fence))
        continue;
}

static void prepare_acquire(const redlock *self, ballot *on, const claim *of, uint64_t fence,
                            int64_t limit_us) {
    for (size_t i = 0; i < self->all.count; i++) {
        question *each = &on->asked[i];
        question_acquire(each, of, 0, nodes_io_timeout_ms(&self->all), limit_us);
        each->x.farewell_from_us = 0;
        each->x.is_patient = true;
        if (fence > 0) question_want_fence(each, fence);
    }
}

/* Granted by a majority. Any later one has a node of this one in it: if all of these count on from
 * our fence, its fence is larger. True: a majority does. */
static bool raise_fences(redlock *self, ballot *on, claim *of, int64_t limit_us) {
    nodes_chosen lower = {0};
    interrupt unstoppable = {.fd = of->stop.fd};
    size_t raised = 0;
    of->call.fence = 0;
    for (size_t i = 0; i < self->all.count; i++)
        if (on->answered.is_in[i] && on->said[i].fence > of->call.fence)
            of->call.fence = on->said[i].fence;
    for (size_t i = 0; i < self->all.count; i++) {
        bool is_ours = on->answered.is_in[i] && on->said[i].status == DLOCK_OK;
        lower.is_in[i] = is_ours && on->said[i].fence < of->call.fence;
        raised += is_ours && !lower.is_in[i];
    }
    if (raised < votes_quorum(self->all.count)) {
        prepare_acquire(self, on, of, of->call.fence, one_timeout(self, limit_us));
        ask(self, on, &lower, 0, &unstoppable);
        for (size_t i = 0; i < self->all.count; i++)
            if (lower.is_in[i]) raised += question_read(&on->asked[i]).fence >= of->call.fence;
    }
    note_fence(self, of->call.fence);
    return raised >= votes_quorum(self->all.count);
}

/* Whoever is silent must not take the time that it takes to raise fences, or to give back what was
 * granted. */
static int64_t vote_limit(const redlock *self, const claim *of, int64_t limit_us) {
    int64_t now_us = now_of(self), left_us = deadline_left_us(limit_us, now_us);
    return deadline_earlier(now_us + left_us / 4 * 3, half_a_lease(self, of));
}

/* The token of before, at those who were not asked this time. */
static void give_back_unheard(redlock *self, const ballot *on, const claim *of,
                              const char *before) {
    claim old = *of;
    ballot releases;
    nodes_chosen unheard = {0}, waited_for = {0};
    bool is_needed = false;
    text_copy(old.call.token, sizeof(old.call.token), before);
    for (size_t i = 0; i < self->all.count; i++) {
        unheard.is_in[i] = !on->answered.is_in[i] || !on->asked[i].x.is_sent;
        waited_for.is_in[i] = on->answered.is_in[i] && on->said[i].status == DLOCK_CANCELED;
        is_needed = is_needed || unheard.is_in[i];
    }
    if (!is_needed) return;
    begin(self, &releases);
    prepare_release(self, &releases, &old, &waited_for, one_timeout(self, half_a_lease(self, of)));
    ask(self, &releases, &unheard, 0, &(interrupt){.fd = of->stop.fd});
}

static bool is_fence_refused(const redlock *self, const ballot *on) {
    for (size_t i = 0; i < self->all.count; i++)
        if (on->answered.is_in[i] && on->said[i].is_fence_refused) return true;
    return false;
}

static dlock_status acquire(backend *base, claim *of, uint32_t wait_ms, int64_t limit_us) {
    redlock *self = (redlock *)base;
    (void)wait_ms; /* cannot be */
    char before[DLOCK_TOKEN_SIZE] = "";
    ballot on;
    begin(self, &on);
    if (of->is_sent && !of->is_token_chosen) {
        text_copy(before, sizeof(before), of->call.token);
        token_vary(of->call.token);
    }
    /* The same token again has the same fence; so we do not ask for a larger one. */
    uint64_t fence = of->is_token_chosen ? 0 : next_fence(self);
    prepare_acquire(self, &on, of, fence, vote_limit(self, of, limit_us));
    for (size_t i = 0; before[0] != '\0' && i < self->all.count; i++)
        question_give_back_first(&on.asked[i], before);
    dlock_status status = vote(self, &on, DLOCK_BUSY, &of->stop);
    tell(self, &on, status, "busy", of);
    bool is_refused = fence > 0 && status != DLOCK_OK && is_fence_refused(self, &on);
    if (before[0] != '\0') give_back_unheard(self, &on, of, before);
    if (status == DLOCK_OK && !raise_fences(self, &on, of, limit_us)) {
        status = DLOCK_NO_QUORUM;
        of->is_passing = true;
        text_copy(of->call.cause, sizeof(of->call.cause),
                  "a majority granted it, but not with the same fence");
    }
    if (status != DLOCK_OK) of->is_sent = !undo(self, &on, of, limit_us);
    if (!is_refused) return status;
    atomic_store(&self->is_clock_wrong, true);
    bool is_answer = status == DLOCK_BUSY || status == DLOCK_CANCELED;
    return is_answer ? status : acquire(base, of, wait_ms, limit_us); /* without a fence */
}

/* -- extend */

static dlock_status extend(backend *base, claim *of, int64_t limit_us) {
    redlock *self = (redlock *)base;
    ballot on;
    int64_t until_us = deadline_earlier(limit_us, half_a_lease(self, of));
    begin(self, &on);
    for (size_t i = 0; i < self->all.count; i++)
        question_extend(&on.asked[i], of, nodes_io_timeout_ms(&self->all), until_us);
    dlock_status status = vote(self, &on, DLOCK_LOST, &of->stop);
    return tell(self, &on, status, "not held", of);
}

static void extend_all(backend *base, claim *const claims[], dlock_status outcomes[], size_t count,
                       const interrupt *stop, int64_t limit_us) {
    batches_extend(&((redlock *)base)->all, claims, outcomes, count, stop, limit_us);
}

/* A release by a stranger changes nothing, and whoever may lock may ask for it. */
static dlock_status ping(backend *base, claim *of, int64_t limit_us) {
    redlock *self = (redlock *)base;
    ballot on;
    votes there = {.voters = self->all.count};
    nodes_chosen nobody = {0}, everybody = nodes_others(&self->all, &nobody);
    begin(self, &on);
    prepare_release(self, &on, of, &everybody, limit_us);
    ask_and_count(self, &on, &everybody, 0, &of->stop);
    for (size_t i = 0; i < self->all.count; i++) {
        dlock_status said = on.said[i].status;
        votes_add(&there, said == DLOCK_LOST ? DLOCK_OK : said, on.said[i].is_passing);
    }
    return votes_result(&there, DLOCK_LOST);
}

/* As long as a majority can be asked, the others are not missed. */
static dlock_status visit_servers(backend *base, claim *of, int64_t limit_us, backend_visit visit,
                                  void *arg) {
    (void)of;
    (void)limit_us;
    redlock *self = (redlock *)base;
    dlock_status failure = DLOCK_OK;
    size_t answered = 0;
    for (size_t i = 0; i < self->all.count; i++) {
        dlock_status status = visit(arg, self->all.each[i].at);
        if (status == DLOCK_OK)
            answered++;
        else
            failure = status;
    }
    return answered >= votes_quorum(self->all.count) ? DLOCK_OK : failure;
}

static uint64_t command_count(const backend *base) {
    return atomic_load(&((redlock *)base)->all.commands);
}

static void free_redlock(backend *base) {
    redlock *old = (redlock *)base;
    nodes_free(&old->all);
    free(old);
}

static const backend_table table = {.acquire = acquire,
                                    .extend = extend,
                                    .extend_all = extend_all,
                                    .release = release,
                                    .ping = ping,
                                    .visit_servers = visit_servers,
                                    .command_count = command_count,
                                    .free = free_redlock};

backend *redlock_new(const deployment *where, const server_limits *limits, const environment *env) {
    redlock *made = calloc(1, sizeof(*made));
    if (made == NULL) return NULL;
    made->base.table = &table;
    made->env = env;
    if (!nodes_init(&made->all, where->servers, where->count, limits, env)) {
        free_redlock(&made->base);
        return NULL;
    }
    return &made->base;
}
