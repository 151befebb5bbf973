/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting_failure_test.c - what fails while an acquire goes on, sessions, and cancels. */
#include "waiting_world.h"

/* -- failures */

static void a_transient_failure_is_tried_again(void) {
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

static void a_failure_that_stays_is_returned_at_once(void) {
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

static void too_few_replicas_are_asked_again_with_another_token(void) {
    call *call = begin(SCRIPT(for_good(DLOCK_NO_REPLICAS), granted), 1000);
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    CHECK_CALLS(world.acquire, 2);
    CHECK(strcmp(world.acquire.seen[0].token, world.acquire.seen[1].token) != 0);
    call = begin(SCRIPT(for_good(DLOCK_NO_REPLICAS)), 0);
    CHECK_EQUAL(run(call, &spin), DLOCK_NO_REPLICAS);
    CHECK_CALLS(world.acquire, 1);
}

static void a_failure_that_stays_ends_a_wait_that_went_on(void) {
    call *call = begin(SCRIPT(busy, unreachable, for_good(DLOCK_REFUSED), granted), 1000);
    CHECK_EQUAL(run(call, &spin), DLOCK_REFUSED);
    CHECK_CALLS(world.acquire, 3);
}

static void a_failure_that_lasts_until_the_deadline_is_what_is_returned(void) {
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
static void the_first_failure_is_never_taken_for_a_later_one(void) {
    call *call = begin(SCRIPT(unreachable), 0);
    call->pub.attempts = 1;
    CHECK_EQUAL(run(call, &spin), DLOCK_UNREACHABLE);
    CHECK_CALLS(world.acquire, 1);
}

static void unreachable_after_something_was_sent_is_in_doubt(void) {
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
static void unreachable_for_good_after_something_was_sent_is_in_doubt(void) {
    call *call = begin(SCRIPT(in_doubt, for_good(DLOCK_UNREACHABLE)), 100);
    CHECK_EQUAL(run(call, &spin), DLOCK_IN_DOUBT);
    CHECK_CALLS(world.acquire, 2);
    CHECK_EQUAL(fake.withdrawn, 1);
}

static void no_quorum_is_tried_again_while_time_is_left(void) {
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
static void no_quorum_at_the_end_says_less_than_the_result_before(void) {
    call *call = begin(SCRIPT(busy, slowly(no_quorum, 150 * MS)), 100);
    CHECK_EQUAL(run(call, &spin), DLOCK_TIMEOUT);
}

static void unreachable_at_the_end_says_less_than_the_result_before(void) {
    call *call = begin(SCRIPT(refused_now, slowly(unreachable, 150 * MS)), 100);
    CHECK_EQUAL(run(call, &spin), DLOCK_REFUSED);
}

static void a_timeout_after_something_was_sent_is_still_withdrawn(void) {
    call *call = begin(SCRIPT(in_doubt, busy), 100);
    CHECK_EQUAL(run(call, &spin), DLOCK_TIMEOUT);
    CHECK_EQUAL(fake.withdrawn, 1);
}

static void a_deployment_that_withdraws_by_itself_is_in_doubt_all_the_same(void) {
    step undone = in_doubt;
    undone.may_hold = false;
    call *call = begin(SCRIPT(undone, unreachable), 100);
    world.is_token_varied = true;
    CHECK_EQUAL(run(call, &spin), DLOCK_IN_DOUBT);
    CHECK_EQUAL(fake.withdrawn, 0);
    CHECK(!is_text(call->pub.token, "token")); /* the last one, for the log */
}

/* -- sessions */

static void a_session_is_asked_for_again_with_another_token_once_it_was_sent(void) {
    session session = {NULL};
    call *call = begin(SCRIPT(busy, in_doubt, granted), 1000);
    call->attempt.terms.session = &session;
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    CHECK(is_text(world.acquire.seen[0].token, "token"));
    CHECK(is_text(world.acquire.seen[1].token, "token"));
    CHECK(!is_text(world.acquire.seen[2].token, "token"));
    CHECK(is_text(call->pub.token, world.acquire.seen[2].token));
    CHECK_EQUAL(fake.withdrawn, 1); /* the token before */
    CHECK(is_text(fake.withdrawn_token, "token"));
}

static void a_session_in_doubt_withdraws_each_token(void) {
    session session = {NULL};
    call *call = begin(SCRIPT(in_doubt), 30);
    call->attempt.terms.session = &session;
    CHECK_EQUAL(run(call, &spin), DLOCK_IN_DOUBT);
    CHECK_CALLS(world.acquire, 3);
    CHECK_EQUAL(fake.withdrawn, 3);
    CHECK(is_text(fake.withdrawn_token, world.acquire.seen[2].token));
    CHECK(!is_text(world.acquire.seen[1].token, world.acquire.seen[2].token));
}

/* -- cancels */

static void a_call_that_was_canceled_before_asks_nobody(void) {
    call *call = begin(SCRIPT(granted), 1000);
    atomic_store(&fake.is_canceled, true);
    CHECK_EQUAL(run(call, &spin), DLOCK_CANCELED);
    CHECK_CALLS(world.acquire, 0);
    CHECK_EQUAL(call->pub.attempts, 0);
    CHECK_EQUAL(call->pub.remote_us, 0);
    CHECK(is_text(call->pub.cause, "canceled"));
}

static void a_cancel_ends_the_pause_at_once(void) {
    call *call = begin(SCRIPT(busy, granted), 1000);
    fake.cancel_at_us = START_US + 4 * MS;
    CHECK_EQUAL(run(call, &spin), DLOCK_CANCELED);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL(after_start_us(fake.now_us), 4 * MS);
    CHECK_EQUAL(world.abandoned, 0);
}

static void a_cancel_at_the_end_of_the_last_pause_is_a_cancel(void) {
    call *call = begin(SCRIPT(busy), 10);
    fake.cancel_at_us = START_US + 10 * MS;
    CHECK_EQUAL(run(call, &spin), DLOCK_CANCELED);
}

static void a_cancel_abandons_the_attempt_under_way(void) {
    call *call = begin(SCRIPT(slowly(busy, 5 * SECOND), granted), DLOCK_WAIT_FOREVER);
    fake.cancel_at_us = START_US + 2 * SECOND;
    CHECK_EQUAL(run(call, &parked), DLOCK_CANCELED);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL(after_start_us(fake.now_us), 2 * SECOND);
    CHECK_EQUAL(world.abandoned, 1);
    CHECK_EQUAL(fake.withdrawn, 0); /* the deployment does so */
    CHECK(is_text(call->pub.cause, "canceled"));
}

static void a_cancel_does_not_undo_a_grant(void) {
    call *call = begin(SCRIPT(granted), 1000);
    dlock_handler handler = waiting_handler(&spin);
    chain *chain = chain_new(1);
    chain_add(chain, handler);
    chain_begin(call);
    CHECK(!chain_advance(chain, call));
    loop_lock(call->loop);
    loop_wait(call->loop, &call->waiter);
    loop_unlock(call->loop);
    CHECK(!world.is_under_way); /* granted, and not looked at yet */
    atomic_store(&fake.is_canceled, true);
    CHECK(chain_advance(chain, call));
    CHECK_EQUAL(call->pub.status, DLOCK_OK);
    CHECK_EQUAL(world.abandoned, 0);
    free(chain);
}

static void a_cancel_while_a_grant_is_confirmed_leaves_the_grant_as_it_is(void) {
    call *call = begin(SCRIPT(slowly(granted, 2 * SECOND)), 60000);
    world.extend = SCRIPT(slowly(granted, 100 * MS));
    fake.cancel_at_us = START_US + 2 * SECOND + 50 * MS;
    CHECK_EQUAL(run(call, &parked), DLOCK_OK);
    CHECK_EQUAL(world.abandoned, 1);
    CHECK_EQUAL(call->pub.asked_us, START_US);
    CHECK_EQUAL(after_start_us(fake.now_us), 2 * SECOND + 50 * MS);
}

static void a_cancel_while_a_grant_is_confirmed_that_is_over_is_a_cancel(void) {
    call *call = begin(SCRIPT(slowly(granted, 20 * SECOND)), 60000);
    world.extend = SCRIPT(slowly(granted, 100 * MS));
    fake.cancel_at_us = START_US + 20 * SECOND + 50 * MS;
    CHECK_EQUAL(run(call, &parked), DLOCK_CANCELED);
    CHECK_EQUAL(world.abandoned, 1);
    CHECK_EQUAL(fake.withdrawn, 1);
}

static void a_cancel_after_something_was_sent_withdraws_it(void) {
    call *call = begin(SCRIPT(in_doubt), 1000);
    fake.cancel_at_us = START_US + 25 * MS;
    CHECK_EQUAL(run(call, &spin), DLOCK_CANCELED);
    CHECK_CALLS(world.acquire, 3);
    CHECK_EQUAL(fake.withdrawn, 1);
}

static void a_call_that_cannot_be_canceled_waits(void) {
    call *call = begin(SCRIPT(busy, granted), 1000);
    call->is_canceled = call->waiter.is_canceled = NULL;
    fake.cancel_at_us = START_US + 4 * MS;
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 10 * MS);
}

int main(void) {
    UNIT_RUN(a_transient_failure_is_tried_again);
    UNIT_RUN(a_failure_that_stays_is_returned_at_once);
    UNIT_RUN(too_few_replicas_are_asked_again_with_another_token);
    UNIT_RUN(a_failure_that_stays_ends_a_wait_that_went_on);
    UNIT_RUN(a_failure_that_lasts_until_the_deadline_is_what_is_returned);
    UNIT_RUN(the_first_failure_is_never_taken_for_a_later_one);
    UNIT_RUN(unreachable_after_something_was_sent_is_in_doubt);
    UNIT_RUN(unreachable_for_good_after_something_was_sent_is_in_doubt);
    UNIT_RUN(no_quorum_is_tried_again_while_time_is_left);
    UNIT_RUN(no_quorum_at_the_end_says_less_than_the_result_before);
    UNIT_RUN(unreachable_at_the_end_says_less_than_the_result_before);
    UNIT_RUN(a_timeout_after_something_was_sent_is_still_withdrawn);
    UNIT_RUN(a_deployment_that_withdraws_by_itself_is_in_doubt_all_the_same);
    UNIT_RUN(a_session_is_asked_for_again_with_another_token_once_it_was_sent);
    UNIT_RUN(a_session_in_doubt_withdraws_each_token);
    UNIT_RUN(a_call_that_was_canceled_before_asks_nobody);
    UNIT_RUN(a_cancel_ends_the_pause_at_once);
    UNIT_RUN(a_cancel_at_the_end_of_the_last_pause_is_a_cancel);
    UNIT_RUN(a_cancel_abandons_the_attempt_under_way);
    UNIT_RUN(a_cancel_does_not_undo_a_grant);
    UNIT_RUN(a_cancel_while_a_grant_is_confirmed_leaves_the_grant_as_it_is);
    UNIT_RUN(a_cancel_while_a_grant_is_confirmed_that_is_over_is_a_cancel);
    UNIT_RUN(a_cancel_after_something_was_sent_withdraws_it);
    UNIT_RUN(a_call_that_cannot_be_canceled_waits);
    return unit_summary();
}
