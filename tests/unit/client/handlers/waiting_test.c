/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting_test.c - when an acquire makes attempts, and until when. */
#include "waiting_world.h"

/* -- one attempt */

TEST(a_free_lock_is_granted_at_once) {
    call *call = begin(SCRIPT(granted), 1000);
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    CHECK_CALLS(world.acquire, 1);
    CHECK_CALLS(world.extend, 0);
    CHECK(call->pub.fence == FENCE);
    CHECK_EQUAL(call->pub.asked_us, START_US);
    CHECK_EQUAL(call->pub.attempts, 1);
    CHECK_EQUAL(call->pub.remote_us, START_US);
    CHECK(is_text(world.acquire.seen[0].token, "token"));
    CHECK(is_text(call->pub.cause, ""));
    CHECK_EQUAL(fake.withdrawn, 0);
}

TEST(without_a_wait_a_held_lock_is_busy_after_one_attempt) {
    call *call = begin(SCRIPT(busy, granted), 0);
    CHECK_EQUAL(run(call, &spin), DLOCK_BUSY);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL(fake.now_us, START_US);
    CHECK(is_text(call->pub.cause, "as scripted"));
}

TEST(without_a_wait_a_slow_service_is_asked_once_and_no_timeout) {
    call *call = begin(SCRIPT(slowly(busy, 150 * MS), granted), 0);
    CHECK_EQUAL(run(call, &parked), DLOCK_BUSY);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL(after_start_us(fake.now_us), 150 * MS);
}

TEST(without_a_wait_even_a_slow_grant_is_a_grant) {
    call *call = begin(SCRIPT(slowly(granted, 199 * MS)), 0);
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
}

TEST(without_a_wait_a_transient_failure_is_not_tried_again) {
    call *call = begin(SCRIPT(unreachable, granted), 0);
    CHECK_EQUAL(run(call, &spin), DLOCK_UNREACHABLE);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL(fake.withdrawn, 0);
    call = begin(SCRIPT(in_doubt, granted), 0);
    CHECK_EQUAL(run(call, &spin), DLOCK_IN_DOUBT);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL(fake.withdrawn, 1);
    CHECK(is_text(fake.withdrawn_token, "token"));
    CHECK_EQUAL(fake.withdrawn_lease_ms, LEASE_MS);
}

TEST(with_a_deadline_in_the_past_one_attempt_is_made) {
    call *call = begin(SCRIPT(busy, granted), 0);
    call->pub.deadline_us = START_US - 1;
    CHECK_EQUAL(run(call, &spin), DLOCK_BUSY);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL(after_start_us(world.acquire.seen[0].limit_us), IO_MS * MS);
}

TEST(a_parked_attempt_has_one_io_timeout_beyond_the_deadline) {
    call *call = begin(SCRIPT(granted), 5000);
    run(call, &parked);
    CHECK_EQUAL(after_start_us(world.acquire.seen[0].limit_us), 5200 * MS);
    CHECK_EQUAL(after_start_us(world.acquire.seen[0].wait_until_us), 5000 * MS);
    call = begin(SCRIPT(granted), DLOCK_WAIT_FOREVER);
    run(call, &parked);
    CHECK_EQUAL(world.acquire.seen[0].limit_us, DEADLINE_NEVER);
    CHECK_EQUAL(world.acquire.seen[0].wait_until_us, DEADLINE_NEVER);
}

TEST(an_attempt_that_is_not_parked_has_time_to_connect_and_for_the_reply) {
    call *call = begin(SCRIPT(busy, granted), 5000);
    run(call, &spin);
    CHECK_EQUAL(after_start_us(world.acquire.seen[0].limit_us), 1200 * MS);
    CHECK_EQUAL(after_start_us(world.acquire.seen[1].limit_us), 1210 * MS);
    call = begin(SCRIPT(granted), DLOCK_WAIT_FOREVER);
    run(call, &spin);
    CHECK_EQUAL(after_start_us(world.acquire.seen[0].limit_us), 1200 * MS);
    call = begin(SCRIPT(granted), 300);
    run(call, &spin);
    CHECK_EQUAL(after_start_us(world.acquire.seen[0].limit_us), 500 * MS);
}

/* -- until the deadline */

TEST(a_lock_that_stays_busy_is_a_timeout_at_the_deadline) {
    call *call = begin(SCRIPT(busy), 1000);
    CHECK_EQUAL(run(call, &spin), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 100);
    CHECK_EQUAL(call->pub.attempts, 100);
    CHECK_EQUAL(call->pub.remote_us, START_US);
    CHECK_EQUAL(after_start_us(fake.now_us), 1000 * MS);
    CHECK_EQUAL(fake.withdrawn, 0);
}

TEST(a_lock_that_becomes_free_is_granted) {
    call *call = begin(SCRIPT(busy, busy, busy, granted), 1000);
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    CHECK_EQUAL(call->pub.attempts, 4);
    CHECK_EQUAL(after_start_us(call->pub.remote_us), 0);
    CHECK_EQUAL(after_start_us(call->pub.asked_us), 30 * MS);
    CHECK_EQUAL(after_start_us(fake.now_us), 30 * MS);
    CHECK(is_text(call->pub.cause, ""));
}

TEST(a_busy_reply_after_the_deadline_is_a_timeout_at_once) {
    call *call = begin(SCRIPT(slowly(busy, 150 * MS), granted), 100);
    CHECK_EQUAL(run(call, &spin), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL(after_start_us(fake.now_us), 150 * MS);
}

TEST(a_busy_reply_just_at_the_deadline_is_a_timeout_at_once) {
    call *call = begin(SCRIPT(slowly(busy, 100 * MS), granted), 100);
    CHECK_EQUAL(run(call, &spin), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 1);
}

TEST(a_grant_after_the_deadline_is_a_grant) {
    call *call = begin(SCRIPT(slowly(granted, 150 * MS)), 100);
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
}

TEST(the_last_pause_ends_at_the_deadline_and_no_attempt_follows) {
    call *call = begin(SCRIPT(busy), 25);
    CHECK_EQUAL(run(call, &spin), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 3);
    check_begun(&world.acquire, 2, 20 * MS);
    CHECK_EQUAL(after_start_us(fake.now_us), 25 * MS);
}

TEST(an_attempt_may_begin_just_before_the_deadline) {
    call *call = begin(SCRIPT(busy, granted), 10);
    call->pub.deadline_us = START_US + 10 * MS + 1;
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 10 * MS);
}

TEST(no_attempt_begins_at_the_deadline) {
    call *call = begin(SCRIPT(busy, granted), 10);
    CHECK_EQUAL(run(call, &spin), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 1);
}

/* -- the pause */

TEST(the_pause_is_counted_from_the_reply) {
    call *call = begin(SCRIPT(slowly(busy, 3 * MS), granted), 1000);
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 13 * MS);
}

TEST(the_shortest_pause_is_the_minimum) {
    call *call = begin(SCRIPT(busy, granted), 1000);
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 10 * MS);
}

TEST(the_longest_pause_is_just_below_minimum_and_random) {
    call *call = begin(SCRIPT(busy, granted), 1000);
    fake.chance = 10 * MS - 1;
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 20 * MS - 1);
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

TEST(a_grown_pause_is_clipped_to_the_time_left) {
    waiting rule = {.pause = {.min_ms = 10, .max_ms = 10000}};
    call *call = begin(SCRIPT(busy), 100);
    CHECK_EQUAL(run(call, &rule), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 4); /* at 0, 10, 30 and 70 */
    CHECK_EQUAL(after_start_us(fake.now_us), 100 * MS);
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

TEST(the_server_parks_only_if_there_is_time) {
    call *call = begin(SCRIPT(busy), 0);
    run(call, &parked);
    CHECK_EQUAL(world.acquire.seen[0].wait_until_us, 0);
    call = begin(SCRIPT(busy), 0);
    call->pub.deadline_us = START_US + 1;
    run(call, &parked);
    CHECK_EQUAL(world.acquire.seen[0].wait_until_us, START_US + 1);
}

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

TEST(a_parked_request_that_ends_busy_at_the_deadline_is_a_timeout) {
    call *call = begin(SCRIPT(slowly(busy, 100 * SECOND)), 100000);
    CHECK_EQUAL(run(call, &parked), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 1);
}

TEST(a_busy_reply_at_once_though_the_server_was_to_park_is_paused_after) {
    call *call = begin(SCRIPT(busy, granted), 1000);
    CHECK_EQUAL(run(call, &parked), DLOCK_OK);
    check_begun(&world.acquire, 1, 10 * MS);
}

/* A server that does not park gets no more requests than from an acquire that spins. */
TEST(a_server_has_parked_if_the_reply_took_the_shortest_pause) {
    call *call = begin(SCRIPT(slowly(busy, 10 * MS - 1), granted), 1000);
    CHECK_EQUAL(run(call, &parked), DLOCK_OK);
    check_begun(&world.acquire, 1, 20 * MS - 1);
    call = begin(SCRIPT(slowly(busy, 10 * MS), granted), 1000);
    CHECK_EQUAL(run(call, &parked), DLOCK_OK);
    check_begun(&world.acquire, 1, 10 * MS);
}

TEST(each_attempt_is_measured_for_itself) {
    call *call = begin(SCRIPT(slowly(busy, 500 * MS), busy, granted), 1000);
    CHECK_EQUAL(run(call, &parked), DLOCK_OK);
    check_begun(&world.acquire, 1, 500 * MS);
    check_begun(&world.acquire, 2, 510 * MS);
}

TEST(an_acquire_that_spins_pauses_however_slow_the_reply_was) {
    call *call = begin(SCRIPT(slowly(busy, 100 * MS), granted), 1000);
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 110 * MS);
}

TEST(a_failure_is_paused_after_however_slow_it_was) {
    call *call = begin(SCRIPT(slowly(unreachable, 100 * MS), granted), 1000);
    CHECK_EQUAL(run(call, &parked), DLOCK_OK);
    check_begun(&world.acquire, 1, 110 * MS);
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
