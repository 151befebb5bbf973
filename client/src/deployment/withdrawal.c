/* SPDX-License-Identifier: BSD-3-Clause */
/* withdrawal.c - see deployment.h.
 *
 *   add      a RELEASE is sent at once
 *   failure  after a pause, which doubles, the RELEASE is sent again. The more withdrawals there
 *            are, the longer each pauses, so that a server in trouble is not flooded. Each success
 *            says that the trouble is over, and starts two withdrawals that pause
 *   end      the token holds nothing, at no server, or the lease is over; while the client is
 *            freed, after any failure too. A refusal or a garbled reply is no end: the next one may
 *            be better
 *   endless  nothing ends a lock that lasts as long as the session, if its RELEASE is forgotten. So
 *            there is no limit to the number of such withdrawals, and each is tried for LATE_MS or
 *            more
 *   late     an ACQUIRE in doubt may arrive after the RELEASE, if their connections differ. The
 *            RELEASE of an endless lock is sent again now and then, for LATE_MS
 *
 * Invariant: each withdrawal in one of the lists has an attempt under way or a timer set. */
#include "deployment/presence.h"

enum { COUNT_MAX = 10000, FEW = 64, PAUSE_FIRST_MS = 20, PAUSE_MAX_MS = 1000 };
enum { LATE_MS = 120000, LATE_PAUSE_MAX_MS = 30000 };

typedef struct withdrawal {
    list_node node;
    deployment *deployment;
    attempt attempt;
    loop_timer timer;
    int64_t until_us; /* the end of the lease; of a lock without one, LATE_MS at least */
    bool may_come_late;
    int64_t pause_ms;
    char token[DLOCK_TOKEN_SIZE];
    char name[]; /* or several, as in the attempt */
} withdrawal;

static void remove_one(withdrawal *withdrawal) {
    deployment *deployment = withdrawal->deployment;
    withdrawals *withdrawals = &deployment->withdrawals;
    list_remove(&withdrawal->node);
    attempt_free(&withdrawal->attempt);
    free(withdrawal);
    bool is_last = --withdrawals->count == 0;
    if (is_last && withdrawals->waiter != NULL) loop_ready(deployment->loop, withdrawals->waiter);
}

static void start_withdrawal(withdrawal *withdrawal) {
    deployment *deployment = withdrawal->deployment;
    int64_t now_us = loop_now_us(deployment->loop);
    loop_clear_timer(deployment->loop, &withdrawal->timer);
    list_remove(&withdrawal->node);
    list_append(&deployment->withdrawals.all, &withdrawal->node);
    withdrawal->attempt.limit_us = deadline_after_ms(now_us, deployment->io_timeout_ms);
    deployment_start(deployment, &withdrawal->attempt);
}

static void start_first(const list *failed) {
    if (list_is_empty(failed)) return;
    start_withdrawal(container_of(list_first(failed), withdrawal, node));
}

static void on_withdrawal_due(loop_timer *timer) {
    withdrawal *withdrawal = container_of(timer, struct withdrawal, timer);
    if (loop_now_us(withdrawal->deployment->loop) >= withdrawal->until_us)
        remove_one(withdrawal);
    else
        start_withdrawal(withdrawal);
}

/* All of them together send about as much as FEW would. */
static void pause_after_failure(withdrawal *withdrawal, int64_t now_us) {
    withdrawals *withdrawals = &withdrawal->deployment->withdrawals;
    int64_t pause_ms = deadline_earlier(
        withdrawal->pause_ms * (1 + (int64_t)withdrawals->count / FEW), LATE_PAUSE_MAX_MS);
    int64_t due_us = deadline_earlier(deadline_after_ms(now_us, pause_ms), withdrawal->until_us);
    list_remove(&withdrawal->node);
    list_append(&withdrawals->failed, &withdrawal->node);
    loop_set_timer(withdrawal->deployment->loop, &withdrawal->timer, due_us);
}

static void on_withdrawal_done(attempt *attempt) {
    withdrawal *withdrawal = attempt->arg;
    loop *loop = withdrawal->deployment->loop;
    withdrawals *withdrawals = &withdrawal->deployment->withdrawals;
    int64_t now_us = loop_now_us(loop);
    int64_t due_us = deadline_after_ms(now_us, withdrawal->pause_ms);
    bool is_done = is_withdrawn(attempt->status) && !attempt->is_transient;
    bool is_enough = is_done && !withdrawal->may_come_late;
    int64_t pause_max_ms = is_done ? LATE_PAUSE_MAX_MS : PAUSE_MAX_MS;
    for (int i = 0; is_done && i < 2; i++)
        start_first(&withdrawals->failed);
    if (is_enough || withdrawals->waiter != NULL || due_us >= withdrawal->until_us) {
        remove_one(withdrawal);
        return;
    }
    attempt->fate = TOKEN_HELD; /* one RELEASE is behind the ACQUIRE by now */
    if (is_done)
        loop_set_timer(loop, &withdrawal->timer, due_us);
    else
        pause_after_failure(withdrawal, now_us);
    withdrawal->pause_ms = deadline_earlier(withdrawal->pause_ms * 2, pause_max_ms);
}

void withdrawals_add(deployment *deployment, const attempt *withdrawn, uint32_t lease_ms) {
    withdrawals *withdrawals = &deployment->withdrawals;
    size_t name_size = text_list_size(withdrawn->name, withdrawn->name_count);
    const tie *tie = withdrawn->terms.tie;
    bool is_endless = tie != NULL && tie->is_endless;
    if (withdrawals->is_closed || (withdrawals->count >= COUNT_MAX && !is_endless)) return;
    withdrawal *added = calloc(1, sizeof(*added) + name_size);
    if (added == NULL) return;
    added->deployment = deployment;
    added->timer.on_due = on_withdrawal_due;
    added->may_come_late = attempt_may_come_late(withdrawn);
    uint32_t limit_ms = is_endless && lease_ms < LATE_MS ? LATE_MS : lease_ms;
    added->until_us = deadline_after_ms(loop_now_us(deployment->loop), limit_ms);
    added->pause_ms = PAUSE_FIRST_MS;
    added->attempt = (attempt){.operation = DLOCK_RELEASING,
                               .name = memcpy(added->name, withdrawn->name, name_size),
                               .name_count = withdrawn->name_count,
                               .lease_ms = lease_ms,
                               .is_background = true,
                               .fate = TOKEN_IN_DOUBT,
                               .on_done = on_withdrawal_done,
                               .arg = added};
    text_copy(added->token, sizeof(added->token), withdrawn->token);
    added->attempt.token = added->token;
    if (!attempt_prepare(&added->attempt, deployment)) {
        free(added);
        return;
    }
    withdrawals->count++;
    /* Without a thread, whichever thread waits next goes on with it. */
    loop_start_background(deployment->loop);
    start_withdrawal(added);
}

/* Each attempt ends by its limit. */
void withdrawals_finish(deployment *deployment) {
    withdrawals *withdrawals = &deployment->withdrawals;
    waiter waiter = {0};
    withdrawals->waiter = &waiter;
    while (!list_is_empty(&withdrawals->failed))
        start_first(&withdrawals->failed);
    list_each(withdrawal, each, &withdrawals->all, node) {
        bool is_under_way = !heap_has(&each->timer.node);
        if (!is_under_way) start_withdrawal(each);
    }
    while (withdrawals->count > 0)
        loop_wait(deployment->loop, &waiter);
    withdrawals->is_closed = true;
}
