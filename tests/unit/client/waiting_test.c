/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting_test.c - when an acquire asks, and until when. */
#include "waiting_world.h"

/* -- one attempt */

static void a_free_lock_is_granted_at_once(void) {
    claim of = begin(SCRIPT(granted), 1000);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    CHECK_CALLS(world.acquire, 1);
    CHECK_CALLS(world.extend, 0);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
    CHECK(of.call.fence == FENCE);
    CHECK_EQUAL(of.call.asked_us, START_US);
    CHECK_EQUAL(of.call.attempts, 1);
    CHECK_EQUAL(of.call.remote_us, START_US);
    CHECK(!of.is_sent);
}

static void without_a_wait_a_held_lock_is_busy_after_one_attempt(void) {
    claim of = begin(SCRIPT(busy, granted), 0);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_BUSY);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
    CHECK_EQUAL(world.now_us, START_US);
}

static void without_a_wait_a_slow_service_is_asked_once_and_no_timeout(void) {
    claim of = begin(SCRIPT(slowly(busy, 150 * MS), granted), 0);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_BUSY);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
}

static void without_a_wait_even_a_slow_grant_is_a_grant(void) {
    claim of = begin(SCRIPT(slowly(granted, 199 * MS)), 0);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
}

static void without_a_wait_a_failure_that_passes_is_not_tried_again(void) {
    claim of = begin(SCRIPT(unreachable, granted), 0);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_UNREACHABLE);
    CHECK_CALLS(world.acquire, 1);
    of = begin(SCRIPT(in_doubt, granted), 0);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_IN_DOUBT);
    CHECK_CALLS(world.acquire, 1);
    CHECK(of.is_sent);
}

static void with_a_deadline_in_the_past_it_asks_once(void) {
    claim of = begin(SCRIPT(busy, granted), 0);
    of.call.deadline_us = START_US - 1;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_BUSY);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL(after_start_us(world.acquire.seen[0].limit_us), 200 * MS);
}

static void the_service_has_one_io_timeout_beyond_the_deadline(void) {
    claim of = begin(SCRIPT(granted), 0);
    acquire(&of, &spin);
    CHECK_EQUAL(after_start_us(world.acquire.seen[0].limit_us), 200 * MS);
    of = begin(SCRIPT(busy, granted), 5000);
    acquire(&of, &spin);
    CHECK_EQUAL(after_start_us(world.acquire.seen[0].limit_us), 5200 * MS);
    CHECK_EQUAL(after_start_us(world.acquire.seen[1].limit_us), 5200 * MS);
    of = begin(SCRIPT(granted), DLOCK_WAIT_FOREVER);
    acquire(&of, &spin);
    CHECK_EQUAL(world.acquire.seen[0].limit_us, DEADLINE_NEVER);
}

/* -- until the deadline */

static void a_lock_that_stays_busy_is_a_timeout_at_the_deadline(void) {
    claim of = begin(SCRIPT(busy), 1000);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 100);
    CHECK_EQUAL(of.call.attempts, 100);
    CHECK_EQUAL(of.call.remote_us, START_US);
    CHECK_EQUAL(after_start_us(world.now_us), 1000 * MS);
    CHECK(!of.is_sent);
}

static void a_lock_that_becomes_free_is_granted(void) {
    claim of = begin(SCRIPT(busy, busy, busy, granted), 1000);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    CHECK_EQUAL(of.call.attempts, 4);
    CHECK_EQUAL(after_start_us(of.call.remote_us), 0);
    CHECK_EQUAL(after_start_us(of.call.asked_us), 30 * MS);
    CHECK_EQUAL(after_start_us(world.now_us), 30 * MS);
}

static void an_answer_after_the_deadline_is_a_timeout_at_once(void) {
    claim of = begin(SCRIPT(slowly(busy, 150 * MS), granted), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
}

static void an_answer_just_at_the_deadline_is_a_timeout_at_once(void) {
    claim of = begin(SCRIPT(slowly(busy, 100 * MS), granted), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
}

static void a_grant_after_the_deadline_is_a_grant(void) {
    claim of = begin(SCRIPT(slowly(granted, 150 * MS)), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
}

static void the_last_pause_ends_at_the_deadline_and_no_attempt_follows(void) {
    claim of = begin(SCRIPT(busy), 25);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 3);
    check_begun(&world.acquire, 2, 20 * MS);
    CHECK_EQUAL((int64_t)world.sleeps, 3);
    CHECK_EQUAL(after_start_us(world.slept[2].at_us), 25 * MS);
    CHECK_EQUAL(after_start_us(world.now_us), 25 * MS);
}

static void an_attempt_may_begin_just_before_the_deadline(void) {
    claim of = begin(SCRIPT(busy, granted), 10);
    of.call.deadline_us = START_US + 10 * MS + 1;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 10 * MS);
}

static void no_attempt_begins_at_the_deadline(void) {
    claim of = begin(SCRIPT(busy, granted), 10);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 1);
}

/* -- the pause */

static void the_pause_is_counted_from_the_answer(void) {
    claim of = begin(SCRIPT(slowly(busy, 3 * MS), granted), 1000);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 13 * MS);
}

static void the_shortest_pause_is_the_minimum(void) {
    claim of = begin(SCRIPT(busy, granted), 1000);
    world.chance = 0;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 10 * MS);
}

static void the_longest_pause_is_just_below_minimum_and_random(void) {
    claim of = begin(SCRIPT(busy, granted), 1000);
    world.chance = 10 * MS - 1;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 20 * MS - 1);
}

static void each_pause_has_a_chance_of_its_own(void) {
    claim of = begin(SCRIPT(busy), 1000);
    world.is_chance_random = true;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_TIMEOUT);
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

static void pauses_double_up_to_the_maximum(void) {
    waiting_rule rule = {.pause = {.min_ms = 10, .max_ms = 100}, .io_timeout_ms = 200};
    claim of = begin(SCRIPT(busy), 1000);
    CHECK_EQUAL(acquire(&of, &rule), DLOCK_TIMEOUT);
    const int64_t begun_ms[] = {0, 10, 30, 70, 150, 250, 350, 450};
    for (size_t i = 0; i < sizeof(begun_ms) / sizeof(begun_ms[0]); i++)
        check_begun(&world.acquire, i, begun_ms[i] * MS);
}

static void a_grown_pause_is_clipped_to_the_time_left(void) {
    waiting_rule rule = {.pause = {.min_ms = 10, .max_ms = 10000}, .io_timeout_ms = 200};
    claim of = begin(SCRIPT(busy), 100);
    CHECK_EQUAL(acquire(&of, &rule), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 4); /* at 0, 10, 30 and 70 */
    CHECK_EQUAL(after_start_us(world.now_us), 100 * MS);
}

static void a_sleep_that_returns_early_is_resumed(void) {
    claim of = begin(SCRIPT(busy, granted), 1000);
    world.nap_us = 3 * MS;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 10 * MS);
    CHECK_EQUAL((int64_t)world.sleeps, 4);
    for (size_t i = 0; i < 4; i++)
        CHECK_EQUAL(after_start_us(world.slept[i].at_us), 10 * MS);
}

/* -- the server waits */

static void the_server_is_asked_to_wait_only_if_there_is_time(void) {
    claim of = begin(SCRIPT(busy), 0);
    acquire(&of, &parked);
    CHECK_EQUAL(world.acquire.seen[0].wait_ms, 0);
    of = begin(SCRIPT(busy), 0);
    of.call.deadline_us = START_US + 1;
    acquire(&of, &parked);
    CHECK(world.acquire.seen[0].wait_ms > 0);
    of = begin(SCRIPT(granted), DLOCK_WAIT_FOREVER);
    acquire(&of, &parked);
    CHECK(world.acquire.seen[0].wait_ms > 0);
}

static void who_spins_never_asks_the_server_to_wait(void) {
    claim of = begin(SCRIPT(busy), 1000);
    acquire(&of, &spin);
    for (size_t i = 0; i < world.acquire.calls && i < SEEN_MAX; i++)
        CHECK_EQUAL(world.acquire.seen[i].wait_ms, 0);
}

static void the_server_waits_in_slices_without_a_pause_between(void) {
    claim of = begin(SCRIPT(slowly(busy, 30 * SECOND)), 100000);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 4);
    for (size_t i = 0; i < 4; i++) {
        check_begun(&world.acquire, i, (int64_t)i * 30 * SECOND);
        CHECK_EQUAL(world.acquire.seen[i].wait_ms, 30000);
    }
    CHECK_EQUAL((int64_t)world.sleeps, 0);
    CHECK_EQUAL(after_start_us(world.now_us), 100200 * MS);
}

static void a_busy_that_came_at_once_though_the_server_was_to_wait_is_paused_after(void) {
    claim of = begin(SCRIPT(busy, granted), 1000);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    CHECK_EQUAL((int64_t)world.sleeps, 1);
    check_begun(&world.acquire, 1, 10 * MS);
}

/* So that a server that does not wait is not asked more often than by who spins. */
static void a_server_has_waited_if_it_took_the_shortest_pause(void) {
    claim of = begin(SCRIPT(slowly(busy, 10 * MS - 1), granted), 1000);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    check_begun(&world.acquire, 1, 20 * MS - 1);
    of = begin(SCRIPT(slowly(busy, 10 * MS), granted), 1000);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    check_begun(&world.acquire, 1, 10 * MS);
}

static void each_slice_is_measured_for_itself(void) {
    claim of = begin(SCRIPT(slowly(busy, 500 * MS), busy, granted), 1000);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    check_begun(&world.acquire, 1, 500 * MS);
    check_begun(&world.acquire, 2, 510 * MS);
}

static void who_spins_pauses_however_slow_the_answer_was(void) {
    claim of = begin(SCRIPT(slowly(busy, 100 * MS), granted), 1000);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 110 * MS);
}

static void a_failure_is_paused_after_however_slow_it_was(void) {
    claim of = begin(SCRIPT(slowly(unreachable, 100 * MS), granted), 1000);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    check_begun(&world.acquire, 1, 110 * MS);
}

/* -- for ever */

static void for_ever_is_a_year_if_need_be(void) {
    waiting_rule rule = spin;
    rule.pause.max_ms = 60000;
    claim of = begin(SCRIPT(busy, unreachable, busy), DLOCK_WAIT_FOREVER);
    world.is_chance_random = true;
    world.free_at_us = START_US + YEAR;
    CHECK_EQUAL(acquire(&of, &rule), DLOCK_OK);
    CHECK(after_start_us(world.now_us) >= YEAR);
    CHECK(after_start_us(world.now_us) <= YEAR + 60 * SECOND);
    CHECK(of.call.attempts > 365 * 24 * 60);
    CHECK_EQUAL(of.call.attempts, (int64_t)world.acquire.calls);
    CHECK_EQUAL(of.call.remote_us, START_US);
    CHECK_EQUAL(of.call.asked_us, world.now_us);
}

static void for_ever_is_a_year_of_slices_if_need_be(void) {
    claim of = begin(SCRIPT(slowly(busy, 30 * SECOND)), DLOCK_WAIT_FOREVER);
    world.free_at_us = START_US + YEAR;
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    CHECK_EQUAL(after_start_us(world.now_us), YEAR);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
    CHECK_EQUAL(of.call.attempts, 365 * 24 * 3600 / 30);
}

/* A pause of 1 ms, which the options allow, makes 2^32 attempts in 50 days. */
static void the_first_attempt_stays_the_first_however_many_follow(void) {
    claim of = begin(SCRIPT(busy, busy, busy, granted), DLOCK_WAIT_FOREVER);
    of.call.attempts = UINT32_MAX - 1;
    of.call.remote_us = 1;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    CHECK_EQUAL(of.call.remote_us, 1);
    CHECK(of.call.attempts >= UINT32_MAX - 1);
}

int main(void) {
    UNIT_RUN(a_free_lock_is_granted_at_once);
    UNIT_RUN(without_a_wait_a_held_lock_is_busy_after_one_attempt);
    UNIT_RUN(without_a_wait_a_slow_service_is_asked_once_and_no_timeout);
    UNIT_RUN(without_a_wait_even_a_slow_grant_is_a_grant);
    UNIT_RUN(without_a_wait_a_failure_that_passes_is_not_tried_again);
    UNIT_RUN(with_a_deadline_in_the_past_it_asks_once);
    UNIT_RUN(the_service_has_one_io_timeout_beyond_the_deadline);
    UNIT_RUN(a_lock_that_stays_busy_is_a_timeout_at_the_deadline);
    UNIT_RUN(a_lock_that_becomes_free_is_granted);
    UNIT_RUN(an_answer_after_the_deadline_is_a_timeout_at_once);
    UNIT_RUN(an_answer_just_at_the_deadline_is_a_timeout_at_once);
    UNIT_RUN(a_grant_after_the_deadline_is_a_grant);
    UNIT_RUN(the_last_pause_ends_at_the_deadline_and_no_attempt_follows);
    UNIT_RUN(an_attempt_may_begin_just_before_the_deadline);
    UNIT_RUN(no_attempt_begins_at_the_deadline);
    UNIT_RUN(the_pause_is_counted_from_the_answer);
    UNIT_RUN(the_shortest_pause_is_the_minimum);
    UNIT_RUN(the_longest_pause_is_just_below_minimum_and_random);
    UNIT_RUN(each_pause_has_a_chance_of_its_own);
    UNIT_RUN(pauses_double_up_to_the_maximum);
    UNIT_RUN(a_grown_pause_is_clipped_to_the_time_left);
    UNIT_RUN(a_sleep_that_returns_early_is_resumed);
    UNIT_RUN(the_server_is_asked_to_wait_only_if_there_is_time);
    UNIT_RUN(who_spins_never_asks_the_server_to_wait);
    UNIT_RUN(the_server_waits_in_slices_without_a_pause_between);
    UNIT_RUN(a_busy_that_came_at_once_though_the_server_was_to_wait_is_paused_after);
    UNIT_RUN(a_server_has_waited_if_it_took_the_shortest_pause);
    UNIT_RUN(each_slice_is_measured_for_itself);
    UNIT_RUN(who_spins_pauses_however_slow_the_answer_was);
    UNIT_RUN(a_failure_is_paused_after_however_slow_it_was);
    UNIT_RUN(for_ever_is_a_year_if_need_be);
    UNIT_RUN(for_ever_is_a_year_of_slices_if_need_be);
    UNIT_RUN(the_first_attempt_stays_the_first_however_many_follow);
    return unit_summary();
}
