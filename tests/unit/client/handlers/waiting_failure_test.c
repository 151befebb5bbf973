/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting_failure_test.c - what fails while an acquire goes on, ties, and cancels. */
#include "waiting_world.h"

#include "deployment/presence.h"

/* -- failures */

TEST(a_transient_failure_is_tried_again) {
    call *call =
        begin(SCRIPT(unreachable, refused_now, in_doubt, busy, unreachable, granted), 1000);
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    CHECK_EQUAL(call->pub.attempts, 6);
    for (size_t i = 0; i < 6; i++) {
        check_begun(&world.acquire, i, (int64_t)i * 10 * MS);
        CHECK(is_text(world.acquire.seen[i].token, "token"));
    }
    CHECK_EQUAL(fake.withdrawn, 0);
}

TEST(the_more_acquires_are_in_trouble_the_longer_each_pauses) {
    const struct {
        size_t others;
        step step;
        int64_t wait_ms, pause_ms;
    } rows[] = {{14, unreachable, 60000, 10},   {15, unreachable, 60000, 20},
                {160, refused_now, 60000, 110}, {160, in_doubt, 60000, 110},
                {160, no_quorum, 60000, 110},   {1000000, unreachable, 60000, 1000},
                {160, unreachable, 100, 50},    {160, busy, 60000, 10},
                {160, split, 60000, 10}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        call *call = begin(SCRIPT(rows[i].step, granted), rows[i].wait_ms);
        world.deployment.troubled = rows[i].others;
        CHECK_EQUAL(run(call, &spin), DLOCK_OK);
        check_begun(&world.acquire, 1, rows[i].pause_ms * MS);
        CHECK_EQUAL(world.deployment.troubled, rows[i].others);
    }
}

TEST(an_acquire_that_is_canceled_is_not_in_trouble_any_more) {
    call *call = begin(SCRIPT(unreachable), 1000);
    fake.cancel_at_us = START_US + 4 * MS;
    CHECK_EQUAL(run(call, &spin), DLOCK_CANCELED);
    CHECK_EQUAL(world.deployment.troubled, 0);
}

TEST(a_failure_that_stays_is_returned_at_once) {
    const dlock_status all[] = {
        DLOCK_REFUSED,     DLOCK_PROTOCOL,   DLOCK_INVALID,   DLOCK_NO_MEMORY, DLOCK_IN_DOUBT,
        DLOCK_UNREACHABLE, DLOCK_QUEUE_FULL, DLOCK_NO_QUORUM, DLOCK_CANCELED,  DLOCK_NO_MODULE};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        call *call = begin(SCRIPT(for_good(all[i]), granted), 1000);
        CHECK_EQUAL(run(call, &spin), all[i]);
        CHECK_CALLS(world.acquire, 1);
        CHECK_EQUAL(fake.now_us, START_US);
    }
}

TEST(too_few_replicas_are_asked_again_with_another_token) {
    call *call = begin(SCRIPT(for_good(DLOCK_NO_REPLICAS), granted), 1000);
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    CHECK_CALLS(world.acquire, 2);
    CHECK(strcmp(world.acquire.seen[0].token, world.acquire.seen[1].token) != 0);
}

TEST(the_result_of_an_acquire_that_fails_says_as_much_as_is_known) {
    const scenario rows[] = {
        {"too few replicas", SCRIPT(for_good(DLOCK_NO_REPLICAS)), .status = DLOCK_NO_REPLICAS,
         .calls = 1},
        {"a failure that stays ends a wait that went on",
         SCRIPT(busy, unreachable, for_good(DLOCK_REFUSED), granted), .wait_ms = 1000,
         .status = DLOCK_REFUSED, .calls = 3, .ends_us = 20 * MS},
        {"unreachable until the deadline", SCRIPT(unreachable), .wait_ms = 100,
         .status = DLOCK_UNREACHABLE, .calls = 10, .ends_us = 100 * MS},
        {"refused until the deadline", SCRIPT(refused_now), .wait_ms = 100, .status = DLOCK_REFUSED,
         .calls = 10, .ends_us = 100 * MS},
        {"unreachable beyond the deadline", SCRIPT(slowly(unreachable, 150 * MS)), .wait_ms = 100,
         .status = DLOCK_UNREACHABLE, .calls = 1, .ends_us = 150 * MS},
        {"unreachable after something was sent is in doubt", SCRIPT(in_doubt, unreachable),
         .wait_ms = 100, .status = DLOCK_IN_DOUBT, .calls = 10, .withdrawn = 1,
         .ends_us = 100 * MS},
        {"also if the attempt ended after the deadline",
         SCRIPT(in_doubt, slowly(unreachable, 150 * MS)), .wait_ms = 100, .status = DLOCK_IN_DOUBT,
         .calls = 2, .withdrawn = 1, .ends_us = 160 * MS},
        /* dlock.h: DLOCK_UNREACHABLE is "nothing was sent". */
        {"also if the failure stays", SCRIPT(in_doubt, for_good(DLOCK_UNREACHABLE)), .wait_ms = 100,
         .status = DLOCK_IN_DOUBT, .calls = 2, .withdrawn = 1, .ends_us = 10 * MS},
        {"no quorum is tried again while time is left", SCRIPT(no_quorum, no_quorum, granted),
         .wait_ms = 100, .calls = 3, .ends_us = 20 * MS, .asked_us = 20 * MS},
        {"no quorum until the deadline", SCRIPT(no_quorum), .wait_ms = 100,
         .status = DLOCK_NO_QUORUM, .calls = 10, .ends_us = 100 * MS},
        {"no quorum without a wait", SCRIPT(no_quorum), .status = DLOCK_NO_QUORUM, .calls = 1},
        /* There was no time left to ask enough servers. */
        {"no quorum at the end says less than the result before",
         SCRIPT(busy, slowly(no_quorum, 150 * MS)), .wait_ms = 100, .status = DLOCK_TIMEOUT,
         .calls = 2, .ends_us = 160 * MS},
        {"unreachable at the end says less than the result before",
         SCRIPT(refused_now, slowly(unreachable, 150 * MS)), .wait_ms = 100,
         .status = DLOCK_REFUSED, .calls = 2, .ends_us = 160 * MS},
        {"a timeout after something was sent is still withdrawn", SCRIPT(in_doubt, busy),
         .wait_ms = 100, .status = DLOCK_TIMEOUT, .calls = 10, .withdrawn = 1, .ends_us = 100 * MS},
    };
    PLAY(rows);
}

/* A handler before may have made attempts of its own. */
TEST(the_first_failure_is_never_taken_for_a_later_one) {
    call *call = begin(SCRIPT(unreachable), 0);
    call->pub.attempts = 1;
    CHECK_EQUAL(run(call, &spin), DLOCK_UNREACHABLE);
    CHECK_CALLS(world.acquire, 1);
}

TEST(a_deployment_that_withdraws_by_itself_is_in_doubt_all_the_same) {
    step undone = in_doubt;
    undone.may_hold = false;
    call *call = begin(SCRIPT(undone, unreachable), 100);
    world.is_token_varied = true;
    CHECK_EQUAL(run(call, &spin), DLOCK_IN_DOUBT);
    CHECK_EQUAL(fake.withdrawn, 0);
    CHECK(!is_text(call->pub.token, "token")); /* the last one, for the log */
}

/* -- ties */

TEST(a_lock_that_is_to_be_tied_keeps_its_token_in_doubt) {
    tie tie = {.is_momentary = true};
    call *call = begin(SCRIPT(busy, in_doubt, granted), 1000);
    call->attempt.terms.tie = &tie;
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    for (int i = 0; i < 3; i++)
        CHECK(is_text(world.acquire.seen[i].token, "token"));
    CHECK_EQUAL(fake.withdrawn, 0);
}

/* -- cancels */

TEST(a_call_that_was_canceled_before_asks_nobody) {
    call *call = begin(SCRIPT(granted), 1000);
    loop_cancel(world.loop, true);
    CHECK_EQUAL(run(call, &spin), DLOCK_CANCELED);
    CHECK_CALLS(world.acquire, 0);
    CHECK_EQUAL(call->pub.attempts, 0);
    CHECK_EQUAL(call->pub.remote_us, 0);
    CHECK(is_text(call->pub.cause, "canceled"));
}

TEST(a_cancel_ends_an_acquire_and_never_undoes_a_grant) {
    const scenario rows[] = {
        {"it ends the pause at once", SCRIPT(busy, granted), .wait_ms = 1000,
         .cancel_at_us = 4 * MS, .status = DLOCK_CANCELED, .calls = 1, .ends_us = 4 * MS},
        {"at the end of the last pause it is a cancel", SCRIPT(busy), .wait_ms = 10,
         .cancel_at_us = 10 * MS, .status = DLOCK_CANCELED, .calls = 1, .ends_us = 10 * MS},
        {"it abandons the attempt under way, which the deployment withdraws",
         SCRIPT(slowly(busy, 5 * SECOND), granted), .rule = &parked, .wait_ms = DLOCK_WAIT_FOREVER,
         .cancel_at_us = 2 * SECOND, .status = DLOCK_CANCELED, .calls = 1, .abandoned = 1,
         .ends_us = 2 * SECOND},
        {"it leaves a grant that is confirmed as it is", SCRIPT(slowly(granted, 2 * SECOND)),
         SCRIPT(slowly(granted, 100 * MS)), .rule = &parked, .wait_ms = 60000,
         .cancel_at_us = 2 * SECOND + 50 * MS, .calls = 1, .extends = 1, .abandoned = 1,
         .ends_us = 2 * SECOND + 50 * MS},
        {"but not a grant that is over", SCRIPT(slowly(granted, 20 * SECOND)),
         SCRIPT(slowly(granted, 100 * MS)), .rule = &parked, .wait_ms = 60000,
         .cancel_at_us = 20 * SECOND + 50 * MS, .status = DLOCK_CANCELED, .calls = 1, .extends = 1,
         .abandoned = 1, .withdrawn = 1, .ends_us = 20 * SECOND + 50 * MS},
        {"after something was sent, that is withdrawn", SCRIPT(in_doubt), .wait_ms = 1000,
         .cancel_at_us = 25 * MS, .status = DLOCK_CANCELED, .calls = 3, .withdrawn = 1,
         .ends_us = 25 * MS},
        {"it ends the pause after a split vote", SCRIPT(split), .chance = 15 * MS,
         .cancel_at_us = 5 * MS, .status = DLOCK_CANCELED, .calls = 1, .ends_us = 5 * MS},
    };
    PLAY(rows);
}

TEST(a_cancel_before_anybody_looked_at_the_grant_is_too_late) {
    call *call = begin(SCRIPT(granted), 1000);
    dlock_handler handler = waiting_handler(&spin);
    chain *chain = chain_new(1);
    chain_add(chain, handler, true);
    chain_begin(call);
    CHECK(!chain_advance(chain, call));
    loop_lock(call->loop);
    loop_wait(call->loop, &call->waiter);
    loop_unlock(call->loop);
    CHECK(!world.is_under_way); /* granted, and not looked at yet */
    loop_cancel(world.loop, true);
    CHECK(chain_advance(chain, call));
    CHECK_EQUAL(call->pub.status, DLOCK_OK);
    CHECK_EQUAL(world.abandoned, 0);
    free(chain);
}

TEST(a_call_that_cannot_be_canceled_waits) {
    call *call = begin(SCRIPT(busy, granted), 1000);
    atomic_store(&call->stop, CALL_GOES_ON);
    call->waiter.cancel = NULL;
    fake.cancel_at_us = START_US + 4 * MS;
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 10 * MS);
}

/* -- split votes */

TEST(even_a_single_try_votes_again_after_a_split_vote) {
    const scenario rows[] = {
        {"after a pause", SCRIPT(split, split_busy, granted), .chance = 7 * MS, .second_us = 7 * MS,
         .calls = 3, .ends_us = 14 * MS, .asked_us = 14 * MS},
        {"a short wait too", SCRIPT(slowly(split, 5 * MS), granted), .wait_ms = 1, .calls = 2,
         .ends_us = 5 * MS, .asked_us = 5 * MS},
        {"but not after busy", SCRIPT(busy), .status = DLOCK_BUSY, .calls = 1},
        {"nor without a quorum", SCRIPT(no_quorum), .status = DLOCK_NO_QUORUM, .calls = 1},
        {"nor after a failure", SCRIPT(unreachable), .status = DLOCK_UNREACHABLE, .calls = 1},
        {"nor after a refusal", SCRIPT(refused_now), .status = DLOCK_REFUSED, .calls = 1},
    };
    PLAY(rows);
}

TEST(the_votes_of_a_single_try_are_few) {
    const step splits[] = {split, split_busy};
    for (int i = 0; i < 100; i++) {
        call *call = begin(steps_of(&splits[i % 2], 1), 0);
        fake.is_chance_random = true;
        CHECK_EQUAL(run(call, &spin), splits[i % 2].status);
        CHECK(world.acquire.calls > 1 && world.acquire.calls <= 4);
    }
}

TEST(a_single_try_that_votes_again_ends_as_soon_as_ever) {
    call *call = begin(SCRIPT(slowly(split, 60 * MS)), 0);
    fake.chance = 20 * MS - 1;
    CHECK_EQUAL(run(call, &spin), DLOCK_NO_QUORUM);
    CHECK_CALLS(world.acquire, 2); /* another one would begin after half of the I/O timeout */
    for (size_t i = 0; i < 2; i++)
        CHECK_EQUAL(after_start_us(world.acquire.seen[i].limit_us), IO_MS * MS);
}

int main(void) {
    return unit_main(NULL, NULL);
}
