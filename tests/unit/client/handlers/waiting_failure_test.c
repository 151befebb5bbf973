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
    call = begin(SCRIPT(for_good(DLOCK_NO_REPLICAS)), 0);
    CHECK_EQUAL(run(call, &spin), DLOCK_NO_REPLICAS);
    CHECK_CALLS(world.acquire, 1);
}

TEST(a_failure_that_stays_ends_a_wait_that_went_on) {
    call *call = begin(SCRIPT(busy, unreachable, for_good(DLOCK_REFUSED), granted), 1000);
    CHECK_EQUAL(run(call, &spin), DLOCK_REFUSED);
    CHECK_CALLS(world.acquire, 3);
}

TEST(a_failure_that_lasts_until_the_deadline_is_what_is_returned) {
    call *call = begin(SCRIPT(unreachable), 100);
    CHECK_EQUAL(run(call, &spin), DLOCK_UNREACHABLE);
    CHECK_CALLS(world.acquire, 10);
    CHECK_EQUAL(after_start_us(fake.now_us), 100 * MS);
    CHECK_EQUAL(fake.withdrawn, 0);
    call = begin(SCRIPT(refused_now), 100);
    CHECK_EQUAL(run(call, &spin), DLOCK_REFUSED);
    call = begin(SCRIPT(slowly(unreachable, 150 * MS)), 100);
    CHECK_EQUAL(run(call, &spin), DLOCK_UNREACHABLE);
    CHECK_CALLS(world.acquire, 1);
}

/* A handler before may have made attempts of its own. */
TEST(the_first_failure_is_never_taken_for_a_later_one) {
    call *call = begin(SCRIPT(unreachable), 0);
    call->pub.attempts = 1;
    CHECK_EQUAL(run(call, &spin), DLOCK_UNREACHABLE);
    CHECK_CALLS(world.acquire, 1);
}

TEST(unreachable_after_something_was_sent_is_in_doubt) {
    call *call = begin(SCRIPT(in_doubt, unreachable), 100);
    CHECK_EQUAL(run(call, &spin), DLOCK_IN_DOUBT);
    CHECK_CALLS(world.acquire, 10);
    CHECK_EQUAL(fake.withdrawn, 1);
    /* The other way out: the attempt ended after the deadline. */
    call = begin(SCRIPT(in_doubt, slowly(unreachable, 150 * MS)), 100);
    CHECK_EQUAL(run(call, &spin), DLOCK_IN_DOUBT);
    CHECK_CALLS(world.acquire, 2);
}

/* dlock.h: DLOCK_UNREACHABLE is "nothing was sent". */
TEST(unreachable_for_good_after_something_was_sent_is_in_doubt) {
    call *call = begin(SCRIPT(in_doubt, for_good(DLOCK_UNREACHABLE)), 100);
    CHECK_EQUAL(run(call, &spin), DLOCK_IN_DOUBT);
    CHECK_CALLS(world.acquire, 2);
    CHECK_EQUAL(fake.withdrawn, 1);
}

TEST(no_quorum_is_tried_again_while_time_is_left) {
    call *call = begin(SCRIPT(no_quorum, no_quorum, granted), 100);
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    call = begin(SCRIPT(no_quorum), 100);
    CHECK_EQUAL(run(call, &spin), DLOCK_NO_QUORUM);
    CHECK_CALLS(world.acquire, 10);
    call = begin(SCRIPT(no_quorum), 0);
    CHECK_EQUAL(run(call, &spin), DLOCK_NO_QUORUM);
    CHECK_CALLS(world.acquire, 1);
}

/* There was no time left to ask enough servers. */
TEST(no_quorum_at_the_end_says_less_than_the_result_before) {
    call *call = begin(SCRIPT(busy, slowly(no_quorum, 150 * MS)), 100);
    CHECK_EQUAL(run(call, &spin), DLOCK_TIMEOUT);
}

TEST(unreachable_at_the_end_says_less_than_the_result_before) {
    call *call = begin(SCRIPT(refused_now, slowly(unreachable, 150 * MS)), 100);
    CHECK_EQUAL(run(call, &spin), DLOCK_REFUSED);
}

TEST(a_timeout_after_something_was_sent_is_still_withdrawn) {
    call *call = begin(SCRIPT(in_doubt, busy), 100);
    CHECK_EQUAL(run(call, &spin), DLOCK_TIMEOUT);
    CHECK_EQUAL(fake.withdrawn, 1);
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

TEST(a_cancel_ends_the_pause_at_once) {
    call *call = begin(SCRIPT(busy, granted), 1000);
    fake.cancel_at_us = START_US + 4 * MS;
    CHECK_EQUAL(run(call, &spin), DLOCK_CANCELED);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL(after_start_us(fake.now_us), 4 * MS);
    CHECK_EQUAL(world.abandoned, 0);
}

TEST(a_cancel_at_the_end_of_the_last_pause_is_a_cancel) {
    call *call = begin(SCRIPT(busy), 10);
    fake.cancel_at_us = START_US + 10 * MS;
    CHECK_EQUAL(run(call, &spin), DLOCK_CANCELED);
}

TEST(a_cancel_abandons_the_attempt_under_way) {
    call *call = begin(SCRIPT(slowly(busy, 5 * SECOND), granted), DLOCK_WAIT_FOREVER);
    fake.cancel_at_us = START_US + 2 * SECOND;
    CHECK_EQUAL(run(call, &parked), DLOCK_CANCELED);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL(after_start_us(fake.now_us), 2 * SECOND);
    CHECK_EQUAL(world.abandoned, 1);
    CHECK_EQUAL(fake.withdrawn, 0); /* the deployment does so */
    CHECK(is_text(call->pub.cause, "canceled"));
}

TEST(a_cancel_does_not_undo_a_grant) {
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

TEST(a_cancel_while_a_grant_is_confirmed_leaves_the_grant_as_it_is) {
    call *call = begin(SCRIPT(slowly(granted, 2 * SECOND)), 60000);
    world.extend = SCRIPT(slowly(granted, 100 * MS));
    fake.cancel_at_us = START_US + 2 * SECOND + 50 * MS;
    CHECK_EQUAL(run(call, &parked), DLOCK_OK);
    CHECK_EQUAL(world.abandoned, 1);
    CHECK_EQUAL(call->pub.asked_us, START_US);
    CHECK_EQUAL(after_start_us(fake.now_us), 2 * SECOND + 50 * MS);
}

TEST(a_cancel_while_a_grant_is_confirmed_that_is_over_is_a_cancel) {
    call *call = begin(SCRIPT(slowly(granted, 20 * SECOND)), 60000);
    world.extend = SCRIPT(slowly(granted, 100 * MS));
    fake.cancel_at_us = START_US + 20 * SECOND + 50 * MS;
    CHECK_EQUAL(run(call, &parked), DLOCK_CANCELED);
    CHECK_EQUAL(world.abandoned, 1);
    CHECK_EQUAL(fake.withdrawn, 1);
}

TEST(a_cancel_after_something_was_sent_withdraws_it) {
    call *call = begin(SCRIPT(in_doubt), 1000);
    fake.cancel_at_us = START_US + 25 * MS;
    CHECK_EQUAL(run(call, &spin), DLOCK_CANCELED);
    CHECK_CALLS(world.acquire, 3);
    CHECK_EQUAL(fake.withdrawn, 1);
}

TEST(a_call_that_cannot_be_canceled_waits) {
    call *call = begin(SCRIPT(busy, granted), 1000);
    atomic_store(&call->stop, CALL_GOES_ON);
    call->waiter.is_canceled = NULL;
    fake.cancel_at_us = START_US + 4 * MS;
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 10 * MS);
}

/* -- split votes */

TEST(a_single_try_votes_again_after_a_split_vote) {
    call *call = begin(SCRIPT(split, split_busy, granted), 0);
    fake.chance = 7 * MS;
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    CHECK_CALLS(world.acquire, 3);
    check_begun(&world.acquire, 1, 7 * MS);
    check_begun(&world.acquire, 2, 14 * MS);
}

TEST(the_votes_of_a_single_try_are_few) {
    const step splits[] = {split, split_busy};
    for (int i = 0; i < 100; i++) {
        call *call = begin(script_of(&splits[i % 2], 1), 0);
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

TEST(without_a_split_vote_a_single_try_asks_once) {
    const step answers[] = {busy, no_quorum, unreachable, refused_now};
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        call *call = begin(script_of(&answers[i], 1), 0);
        CHECK_EQUAL(run(call, &spin), answers[i].status);
        CHECK_CALLS(world.acquire, 1);
    }
}

TEST(a_cancel_ends_the_pause_after_a_split_vote) {
    call *call = begin(SCRIPT(split), 0);
    fake.chance = 15 * MS;
    fake.cancel_at_us = START_US + 5 * MS;
    CHECK_EQUAL(run(call, &spin), DLOCK_CANCELED);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL(after_start_us(fake.now_us), 5 * MS);
}

TEST(a_short_wait_votes_again_too) {
    call *call = begin(SCRIPT(slowly(split, 5 * MS), granted), 1);
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    CHECK_CALLS(world.acquire, 2);
}

int main(void) {
    return unit_main(NULL, NULL);
}
