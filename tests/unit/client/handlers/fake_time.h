/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_time.h - the real loop on a clock that the test owns. Time passes only while somebody waits
 * in the loop: the clock skips to the next timer, or to the moment of a cancel. Withdrawals are
 * counted instead of sent. */
#ifndef DLOCK_FAKE_TIME_H
#define DLOCK_FAKE_TIME_H

#include "base/platform.h"
#include "base/text.h"
#include "deployment/deployment.h"
#include "handlers/chain.h"
#include "unit.h"
#include <stdlib.h>

#define START_US INT64_C(1000000000000000) /* later than the machine's own clock */
#define MS       INT64_C(1000)
#define SECOND   INT64_C(1000000)
#define DAY      (24 * 3600 * SECOND)

static struct {
    int64_t now_us;
    uint64_t chance;
    bool is_chance_random;
    size_t skips; /* how often somebody had to wait */
    int64_t cancel_at_us;
    loop *loop;

    int withdrawn;
    char withdrawn_token[DLOCK_TOKEN_SIZE]; /* the last one */
    uint32_t withdrawn_lease_ms;
} fake;

static inline int64_t fake_now_us(const clock_source *clock) {
    (void)clock;
    return fake.now_us;
}

static inline uint64_t fake_random_bits(const clock_source *clock) {
    (void)clock;
    return fake.is_chance_random ? unit_random() : fake.chance;
}

static inline void fake_skip_to(const clock_source *clock, int64_t until_us) {
    (void)clock;
    fake.skips++;
    if (fake.now_us < fake.cancel_at_us && fake.cancel_at_us <= until_us &&
        fake.cancel_at_us != DEADLINE_NEVER) {
        fake.now_us = fake.cancel_at_us;
        loop_cancel(fake.loop, true);
        return;
    }
    if (until_us == DEADLINE_NEVER) { /* a call that nothing can wake must fail, not hang */
        printf("%s: waits for nothing\n", unit.name);
        exit(1);
    }
    if (until_us > fake.now_us) fake.now_us = until_us;
}

static const clock_source fake_clock = {
    .now_us = fake_now_us, .random_bits = fake_random_bits, .skip_to = fake_skip_to};

void withdrawals_add(deployment *deployment, const attempt *withdrawn_attempt, uint32_t lease_ms) {
    const char *name = withdrawn_attempt->name, *token = withdrawn_attempt->token;
    (void)deployment;
    CHECK(name[0] != '\0');
    fake.withdrawn++;
    fake.withdrawn_lease_ms = lease_ms;
    text_copy(fake.withdrawn_token, sizeof(fake.withdrawn_token), token);
}

/* One loop for all cases: a case leaves no timer behind. */
static inline loop *fake_begin(void) {
    static loop *only;
    memset(&fake, 0, sizeof(fake));
    fake.now_us = START_US;
    fake.cancel_at_us = DEADLINE_NEVER;
    if (only == NULL) only = loop_new(&fake_clock);
    fake.loop = only;
    loop_cancel(only, false);
    return only;
}

/* As the API does. */
static inline dlock_status finish_call(const chain *chain, call *call) {
    while (!chain_advance(chain, call)) {
        loop_lock(call->loop);
        loop_wait(call->loop, &call->waiter);
        loop_unlock(call->loop);
    }
    return call->pub.status;
}

static inline int64_t after_start_us(int64_t time_us) {
    return time_us - START_US;
}

static inline bool is_text(const char *actual, const char *expected) {
    return strcmp(actual, expected) == 0;
}

#endif
