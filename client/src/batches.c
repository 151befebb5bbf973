/* SPDX-License-Identifier: BSD-3-Clause */
/* batches.c - see batches.h. */
#include "batches.h"

#include "batch.h"
#include "deadline.h"
#include "text.h"
#include "votes.h"
#include <stdlib.h>

enum { LEASE_PARTS = 3 };

/* The same batch for each node, and what each of them said about each claim. */
typedef struct batches {
    batch *asked[NODES_MAX];
    dlock_status *said[NODES_MAX];
    nodes_chosen answered;
} batches;

static void free_batches(batches *old) {
    for (size_t i = 0; i < NODES_MAX; i++) {
        batch_free(old->asked[i]);
        free(old->said[i]);
    }
}

static bool make_batches(const nodes *of, batches *made, claim *const claims[], size_t count,
                         int64_t limit_us) {
    *made = (batches){0};
    for (size_t i = 0; i < of->count; i++) {
        made->said[i] = malloc((count + 1) * sizeof(made->said[i][0]));
        if (made->said[i] == NULL) return false;
        made->asked[i] = batch_new(claims, made->said[i], count, nodes_io_timeout_ms(of), limit_us);
        if (made->asked[i] == NULL) return false;
    }
    return true;
}

static void ask_batches(nodes *of, batches *all, const nodes_chosen *chosen,
                        const interrupt *stop) {
    exchange *questions[NODES_MAX];
    for (size_t i = 0; i < of->count; i++)
        questions[i] = batch_exchange(all->asked[i]);
    nodes_ask(of, chosen, questions, 0, stop);
    for (size_t i = 0; i < of->count; i++) {
        if (!chosen->is_in[i]) continue;
        batch_read(all->asked[i]);
        all->answered.is_in[i] = true;
    }
}

/* What becomes of one claim. *first_us: from when on it is extended, if it is. */
static votes count_batches(const nodes *of, const batches *all, size_t which, int64_t *first_us) {
    votes counted = {.voters = of->count};
    *first_us = DEADLINE_NEVER;
    for (size_t i = 0; i < of->count; i++) {
        if (!all->answered.is_in[i]) continue;
        votes_add(&counted, all->said[i][which], true);
        if (all->said[i][which] == DLOCK_OK)
            *first_us = deadline_earlier(*first_us, batch_exchange(all->asked[i])->sent_us);
    }
    return counted;
}

static dlock_status tell_batches(const nodes *of, const batches *all, size_t which, claim *one) {
    int64_t first_us;
    votes counted = count_batches(of, all, which, &first_us);
    dlock_status status = votes_result(&counted, DLOCK_LOST);
    const char *mark = ": ";
    one->is_passing = status == DLOCK_NO_QUORUM;
    votes_describe(&counted, "ok", "not held", one->call.cause, DLOCK_CAUSE_SIZE);
    for (size_t i = 0; status != DLOCK_OK && i < of->count; i++) {
        const exchange *x = batch_exchange(all->asked[i]);
        if (!all->answered.is_in[i] || x->status == DLOCK_OK) continue;
        text_append(one->call.cause, DLOCK_CAUSE_SIZE, mark);
        text_append(one->call.cause, DLOCK_CAUSE_SIZE, x->cause);
        mark = "; ";
    }
    if (status == DLOCK_OK) {
        one->call.cause[0] = '\0';
        one->call.asked_us = first_us;
    }
    return status;
}

static void fail_all(claim *const claims[], dlock_status outcomes[], size_t count) {
    for (size_t i = 0; i < count; i++) {
        outcomes[i] = DLOCK_NO_MEMORY;
        claims[i]->is_passing = true;
        text_copy(claims[i]->call.cause, DLOCK_CAUSE_SIZE, "no memory");
    }
}

/* Whoever is silent must not use up the leases, although a majority has answered: this leaves time
 * for the next extension. */
static int64_t a_part_of_the_lease(const nodes *of, claim *const claims[], size_t count) {
    uint32_t shortest_ms = UINT32_MAX;
    for (size_t i = 0; i < count; i++)
        if (claims[i]->call.lease_ms < shortest_ms) shortest_ms = claims[i]->call.lease_ms;
    return deadline_after_ms(of->env->now_us(of->env), shortest_ms / LEASE_PARTS);
}

void batches_extend(nodes *of, claim *const claims[], dlock_status outcomes[], size_t count,
                    const interrupt *stop, int64_t limit_us) {
    batches all;
    limit_us = deadline_earlier(limit_us, a_part_of_the_lease(of, claims, count));
    if (!make_batches(of, &all, claims, count, limit_us)) {
        fail_all(claims, outcomes, count);
        free_batches(&all);
        return;
    }
    bool is_open = false;
    nodes_chosen chosen = nodes_choose(of, votes_quorum(of->count));
    nodes_chosen others = nodes_others(of, &chosen);
    ask_batches(of, &all, &chosen, stop);
    for (size_t i = 0; !is_open && i < count; i++) {
        int64_t first_us;
        votes counted = count_batches(of, &all, i, &first_us);
        is_open = votes_are_open(&counted, DLOCK_LOST);
    }
    if (is_open) ask_batches(of, &all, &others, stop);
    for (size_t i = 0; i < count; i++)
        outcomes[i] = tell_batches(of, &all, i, claims[i]);
    free_batches(&all);
}
