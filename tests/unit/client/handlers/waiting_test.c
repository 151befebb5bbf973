/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting_test.c - when an acquire makes attempts, and until when. */
#include "waiting_world.h"

TEST(without_a_wait_one_attempt_is_made) {
    const scenario rows[] = {
        {"a held lock is busy", SCRIPT(busy, granted), .status = DLOCK_BUSY, .calls = 1},
        {"a slow service is no timeout", SCRIPT(slowly(busy, 150 * MS), granted), .rule = &parked,
         .status = DLOCK_BUSY, .calls = 1, .ends_us = 150 * MS},
        {"even a slow grant is a grant", SCRIPT(slowly(granted, 199 * MS)), .calls = 1,
         .ends_us = 199 * MS},
        {"a transient failure is not tried again", SCRIPT(unreachable, granted),
         .status = DLOCK_UNREACHABLE, .calls = 1},
        {"a doubt is withdrawn", SCRIPT(in_doubt, granted), .status = DLOCK_IN_DOUBT, .calls = 1,
         .withdrawn = 1},
        {"a deadline in the past is none", SCRIPT(busy, granted), .deadline_us = -1,
         .limit_us = IO_MS * MS, .status = DLOCK_BUSY, .calls = 1},
    };
    PLAY(rows);
}

TEST(an_attempt_has_a_limit) {
    const scenario rows[] = {
        {"parked: an I/O timeout beyond the deadline", SCRIPT(granted), .rule = &parked,
         .wait_ms = 5000, .limit_us = 5200 * MS, .parked_until_us = 5000 * MS, .calls = 1},
        {"parked for ever: none", SCRIPT(granted), .rule = &parked, .wait_ms = DLOCK_WAIT_FOREVER,
         .limit_us = DEADLINE_NEVER - START_US, .parked_until_us = DEADLINE_NEVER - START_US,
         .calls = 1},
        {"parked if there is time at all", SCRIPT(busy), .rule = &parked, .deadline_us = 1,
         .parked_until_us = 1, .status = DLOCK_TIMEOUT, .calls = 1, .ends_us = 1},
        {"not parked: time to connect and for the reply", SCRIPT(granted), .wait_ms = 5000,
         .limit_us = 1200 * MS, .calls = 1},
        {"not parked, for ever: likewise", SCRIPT(granted), .wait_ms = DLOCK_WAIT_FOREVER,
         .limit_us = 1200 * MS, .calls = 1},
        {"not parked, and little time: an I/O timeout beyond the deadline", SCRIPT(granted),
         .wait_ms = 300, .limit_us = 500 * MS, .calls = 1},
    };
    PLAY(rows);
    run(begin(SCRIPT(busy), 0), &parked);
    CHECK_EQUAL(world.acquire.seen[0].wait_until_us, 0);
    run(begin(SCRIPT(busy, granted), 5000), &spin);
    CHECK_EQUAL(after_start_us(world.acquire.seen[1].limit_us), 1210 * MS);
}

TEST(attempts_follow_until_the_deadline) {
    const scenario rows[] = {
        {"a free lock is granted at once", SCRIPT(granted), .wait_ms = 1000, .calls = 1},
        {"a lock that stays busy is a timeout", SCRIPT(busy), .wait_ms = 1000,
         .status = DLOCK_TIMEOUT, .calls = 100, .ends_us = 1000 * MS},
        {"a lock that becomes free is granted", SCRIPT(busy, busy, busy, granted), .wait_ms = 1000,
         .calls = 4, .ends_us = 30 * MS, .asked_us = 30 * MS},
        {"busy after the deadline: at once", SCRIPT(slowly(busy, 150 * MS), granted),
         .wait_ms = 100, .status = DLOCK_TIMEOUT, .calls = 1, .ends_us = 150 * MS},
        {"busy just at the deadline: at once", SCRIPT(slowly(busy, 100 * MS), granted),
         .wait_ms = 100, .status = DLOCK_TIMEOUT, .calls = 1, .ends_us = 100 * MS},
        {"a grant after the deadline is a grant", SCRIPT(slowly(granted, 150 * MS)), .wait_ms = 100,
         .calls = 1, .ends_us = 150 * MS},
        {"the last pause ends at the deadline, and no attempt follows", SCRIPT(busy), .wait_ms = 25,
         .third_us = 20 * MS, .status = DLOCK_TIMEOUT, .calls = 3, .ends_us = 25 * MS},
        {"an attempt may begin just before the deadline", SCRIPT(busy, granted),
         .deadline_us = 10 * MS + 1, .calls = 2, .ends_us = 10 * MS, .asked_us = 10 * MS},
        {"no attempt begins at the deadline", SCRIPT(busy, granted), .wait_ms = 10,
         .status = DLOCK_TIMEOUT, .calls = 1, .ends_us = 10 * MS},
    };
    PLAY(rows);
}

/* -- the pause */

static const waiting doubling = {.pause = {.min_ms = 10, .max_ms = 10000}};

TEST(attempts_have_a_pause_between_them) {
    const scenario rows[] = {
        {"counted from the reply", SCRIPT(slowly(busy, 3 * MS), granted), .wait_ms = 1000,
         .calls = 2, .ends_us = 13 * MS, .asked_us = 13 * MS},
        {"at least the minimum", SCRIPT(busy, granted), .wait_ms = 1000, .calls = 2,
         .ends_us = 10 * MS, .asked_us = 10 * MS},
        {"just below minimum and random at most", SCRIPT(busy, granted), .wait_ms = 1000,
         .chance = 10 * MS - 1, .calls = 2, .ends_us = 20 * MS - 1, .asked_us = 20 * MS - 1},
        {"a grown pause is clipped to the time left", SCRIPT(busy), .rule = &doubling,
         .wait_ms = 100, /* attempts at 0, 10, 30 and 70 ms */
         .status = DLOCK_TIMEOUT, .calls = 4, .ends_us = 100 * MS},
        {"an acquire that spins pauses however slow the reply was",
         SCRIPT(slowly(busy, 100 * MS), granted), .wait_ms = 1000, .calls = 2, .ends_us = 110 * MS,
         .asked_us = 110 * MS},
        {"a failure is paused after however slow it was",
         SCRIPT(slowly(unreachable, 100 * MS), granted), .rule = &parked, .wait_ms = 1000,
         .calls = 2, .ends_us = 110 * MS, .asked_us = 110 * MS},
    };
    PLAY(rows);
}

TEST(each_pause_has_a_chance_of_its_own) {
    call *call = begin(SCRIPT(busy), 1000);
    fake.is_chance_random = true;
    CHECK_EQUAL(run(call, &spin), DLOCK_TIMEOUT);
    int different = 0;
    int64_t before_us = 0;
    for (size_t i = 1; i < world.acquire.calls && i < SEEN_MAX; i++) {
        int64_t pause_us = world.acquire.seen[i].begun_us - world.acquire.seen[i - 1].begun_us;
        CHECK(pause_us >= 10 * MS && pause_us < 20 * MS);
        different += pause_us != before_us;
        before_us = pause_us;
    }
    CHECK(world.acquire.calls > 50);
    CHECK(different > 40);
}

TEST(pauses_double_up_to_the_maximum) {
    waiting rule = {.pause = {.min_ms = 10, .max_ms = 100}};
    call *call = begin(SCRIPT(busy), 1000);
    CHECK_EQUAL(run(call, &rule), DLOCK_TIMEOUT);
    const int64_t begun_ms[] = {0, 10, 30, 70, 150, 250, 350, 450};
    for (size_t i = 0; i < sizeof(begun_ms) / sizeof(begun_ms[0]); i++)
        check_begun(&world.acquire, i, begun_ms[i] * MS);
}

/* -- advanced for nothing */

TEST(a_call_that_is_advanced_for_nothing_stays_suspended) {
    call *call = begin(SCRIPT(slowly(busy, 5 * MS), granted), 1000);
    dlock_handler handler = waiting_handler(&spin);
    chain *chain = chain_new(1);
    chain_add(chain, handler, true);
    chain_begin(call);
    for (int i = 0; i < 10; i++)
        CHECK(!chain_advance(chain, call)); /* the attempt is under way */
    CHECK_CALLS(world.acquire, 1);
    loop_lock(call->loop);
    loop_wait(call->loop, &call->waiter);
    loop_unlock(call->loop);
    for (int i = 0; i < 10; i++)
        CHECK(!chain_advance(chain, call)); /* the pause is under way */
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL(finish_call(chain, call), DLOCK_OK);
    check_begun(&world.acquire, 1, 15 * MS);
    CHECK_CALLS(world.acquire, 2);
    free(chain);
}

/* -- parked */

TEST(an_acquire_that_spins_is_never_parked) {
    call *call = begin(SCRIPT(busy), 1000);
    run(call, &spin);
    for (size_t i = 0; i < world.acquire.calls && i < SEEN_MAX; i++)
        CHECK_EQUAL(world.acquire.seen[i].wait_until_us, 0);
}

TEST(a_deployment_that_cannot_wait_is_spun) {
    call *call = begin(SCRIPT(slowly(busy, 20 * MS), granted), 1000);
    world.deployment.can_wait = false;
    CHECK_EQUAL(run(call, &parked), DLOCK_OK);
    CHECK_EQUAL(world.acquire.seen[0].wait_until_us, 0);
    check_begun(&world.acquire, 1, 30 * MS);
}

/* A server that does not park gets no more requests than from an acquire that spins. */
TEST(a_server_has_parked_if_the_reply_took_the_shortest_pause) {
    const scenario rows[] = {
        {"busy at the deadline is a timeout", SCRIPT(slowly(busy, 100 * SECOND)), .rule = &parked,
         .wait_ms = 100000, .status = DLOCK_TIMEOUT, .calls = 1, .ends_us = 100 * SECOND},
        {"busy at once is paused after", SCRIPT(busy, granted), .rule = &parked, .wait_ms = 1000,
         .calls = 2, .ends_us = 10 * MS, .asked_us = 10 * MS},
        {"busy a little too soon is paused after", SCRIPT(slowly(busy, 10 * MS - 1), granted),
         .rule = &parked, .wait_ms = 1000, .calls = 2, .ends_us = 20 * MS - 1,
         .asked_us = 20 * MS - 1},
        {"busy after the shortest pause is not", SCRIPT(slowly(busy, 10 * MS), granted),
         .rule = &parked, .wait_ms = 1000, .calls = 2, .ends_us = 10 * MS, .asked_us = 10 * MS},
        {"each attempt is measured for itself", SCRIPT(slowly(busy, 500 * MS), busy, granted),
         .rule = &parked, .wait_ms = 1000, .second_us = 500 * MS, .calls = 3, .ends_us = 510 * MS,
         .asked_us = 510 * MS},
    };
    PLAY(rows);
}

/* -- for ever */

TEST(for_ever_is_a_month_if_need_be) {
    waiting rule = spin;
    rule.pause.max_ms = 60000;
    call *call = begin(SCRIPT(busy, unreachable, busy), DLOCK_WAIT_FOREVER);
    fake.is_chance_random = true;
    world.free_at_us = START_US + 30 * DAY;
    CHECK_EQUAL(run(call, &rule), DLOCK_OK);
    CHECK(after_start_us(fake.now_us) >= 30 * DAY);
    CHECK(after_start_us(fake.now_us) <= 30 * DAY + 60 * SECOND);
    CHECK(call->pub.attempts > 30 * 24 * 60);
    CHECK_EQUAL(call->pub.attempts, world.acquire.calls);
    CHECK_EQUAL(call->pub.remote_us, START_US);
    CHECK_EQUAL(call->pub.asked_us, fake.now_us);
}

/* A pause of 1 ms, which the options allow, makes 2^32 attempts in 50 days. */
TEST(the_first_attempt_stays_the_first_however_many_follow) {
    call *call = begin(SCRIPT(busy, busy, busy, granted), DLOCK_WAIT_FOREVER);
    call->pub.attempts = UINT32_MAX - 1;
    call->pub.remote_us = 1;
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    CHECK_EQUAL(call->pub.remote_us, 1);
    CHECK(call->pub.attempts >= UINT32_MAX - 1);
}

int main(void) {
    return unit_main(NULL, NULL);
}
