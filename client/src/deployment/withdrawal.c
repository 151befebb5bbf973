/* SPDX-License-Identifier: BSD-3-Clause */
/* withdrawal.c - see withdrawal.h.
 *
 *   add      a RELEASE is sent at once
 *   failure  after a pause, which doubles, the RELEASE is sent again
 *   end      answered, or the lease is over by then; after withdrawals_hurry() also after a failure
 *
 * Invariant: each withdrawal in the list has an attempt under way or a timer set. */
#include "deployment/withdrawal.h"

#include "base/deadline.h"
#include "base/text.h"
#include <stdlib.h>
#include <string.h>

enum { COUNT_MAX = 10000, PAUSE_FIRST_MS = 20, PAUSE_MAX_MS = 1000 };

typedef struct withdrawal {
    list_node node;
    withdrawals *withdrawals;
    attempt attempt;
    loop_timer timer;
    int64_t until_us; /* the end of the lease */
    int64_t pause_ms;
    char name[];
} withdrawal;

struct withdrawals {
    deployment *deployment;
    list all; /* withdrawal */
    size_t count;
    waiter *waiter; /* of withdrawals_hurry(): ready once the list is empty; NULL: no hurry */
};

static bool is_under_way(const withdrawal *withdrawal) {
    return !withdrawal->timer.node.is_queued;
}

static void remove_one(withdrawal *withdrawal) {
    withdrawals *withdrawals = withdrawal->withdrawals;
    list_remove(&withdrawal->node);
    attempt_free(&withdrawal->attempt);
    free(withdrawal);
    bool is_last = --withdrawals->count == 0;
    if (is_last && withdrawals->waiter != NULL)
        loop_ready(withdrawals->deployment->loop, withdrawals->waiter);
}

static void start(withdrawal *withdrawal) {
    deployment *deployment = withdrawal->withdrawals->deployment;
    int64_t now_us = loop_now_us(deployment->loop);
    loop_clear_timer(deployment->loop, &withdrawal->timer);
    withdrawal->attempt.may_hold = true;
    withdrawal->attempt.limit_us = deadline_after_ms(now_us, deployment->io_timeout_ms);
    deployment_start(deployment, &withdrawal->attempt);
}

static void on_due(loop_timer *timer) {
    start(container_of(timer, withdrawal, timer));
}

static void on_done(attempt *attempt) {
    withdrawal *withdrawal = attempt->arg;
    withdrawals *withdrawals = withdrawal->withdrawals;
    loop *loop = withdrawals->deployment->loop;
    int64_t due_us = deadline_after_ms(loop_now_us(loop), withdrawal->pause_ms);
    bool is_answered = !attempt->is_transient && attempt->status != DLOCK_NO_MEMORY;
    if (is_answered || withdrawals->waiter != NULL || due_us >= withdrawal->until_us) {
        remove_one(withdrawal);
        return;
    }
    loop_set_timer(loop, &withdrawal->timer, due_us);
    withdrawal->pause_ms = deadline_earlier(withdrawal->pause_ms * 2, PAUSE_MAX_MS);
}

withdrawals *withdrawals_new(deployment *deployment) {
    withdrawals *withdrawals = calloc(1, sizeof(*withdrawals));
    if (withdrawals == NULL) return NULL;
    withdrawals->deployment = deployment;
    list_init(&withdrawals->all);
    return withdrawals;
}

void withdrawals_free(withdrawals *withdrawals) {
    if (withdrawals == NULL) return;
    list_node *node;
    while ((node = list_first(&withdrawals->all)) != NULL) {
        withdrawal *left = container_of(node, withdrawal, node);
        deployment *deployment = withdrawals->deployment;
        if (is_under_way(left)) deployment_abandon(deployment, &left->attempt);
        loop_clear_timer(deployment->loop, &left->timer);
        remove_one(left);
    }
    free(withdrawals);
}

void withdrawals_add(withdrawals *withdrawals, const char *name, const char *token,
                     uint32_t lease_ms) {
    loop *loop = withdrawals->deployment->loop;
    size_t name_size = strlen(name) + 1;
    if (withdrawals->count >= COUNT_MAX) return;
    withdrawal *added = calloc(1, sizeof(*added) + name_size);
    if (added == NULL) return;
    added->withdrawals = withdrawals;
    added->timer.on_due = on_due;
    added->until_us = deadline_after_ms(loop_now_us(loop), lease_ms);
    added->pause_ms = PAUSE_FIRST_MS;
    added->attempt = (attempt){.operation = DLOCK_RELEASING,
                               .name = memcpy(added->name, name, name_size),
                               .lease_ms = lease_ms,
                               .on_done = on_done,
                               .arg = added};
    text_copy(added->attempt.token, sizeof(added->attempt.token), token);
    if (!attempt_prepare(&added->attempt, withdrawals->deployment)) {
        free(added);
        return;
    }
    list_append(&withdrawals->all, &added->node);
    withdrawals->count++;
    loop_start_background(loop); /* without a thread, whichever thread waits next goes on with it */
    start(added);
}

size_t withdrawals_count(const withdrawals *withdrawals) {
    return withdrawals->count;
}

void withdrawals_hurry(withdrawals *withdrawals, waiter *waiter) {
    withdrawals->waiter = waiter;
    if (withdrawals->count == 0) loop_ready(withdrawals->deployment->loop, waiter);
    list_node *node = list_first(&withdrawals->all);
    for (; node != NULL; node = list_next(&withdrawals->all, node)) {
        withdrawal *each = container_of(node, withdrawal, node);
        if (!is_under_way(each)) start(each);
    }
}
