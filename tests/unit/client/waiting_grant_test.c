/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting_grant_test.c - what a grant is worth after the wait for it; and all promises. */
#include "validity.h"
#include "waiting_world.h"

/* -- the grant */

static void a_grant_that_was_not_waited_for_is_not_extended(void) {
    claim of = begin(SCRIPT(slowly(granted, 1 * SECOND)), 60000);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    CHECK_CALLS(world.extend, 0);
    CHECK_EQUAL(of.call.asked_us, START_US);
}

static void a_grant_after_more_than_a_tenth_of_the_lease_is_extended(void) {
    claim of = begin(SCRIPT(slowly(granted, 1 * SECOND + 1)), 60000);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    CHECK_CALLS(world.acquire, 1);
    CHECK_CALLS(world.extend, 1);
    CHECK_EQUAL(after_start_us(world.extend.seen[0].limit_us), 1 * SECOND + 1 + 200 * MS);
    CHECK_EQUAL(after_start_us(of.call.asked_us), 1 * SECOND + 1);
    CHECK(of.call.fence == FENCE);
}

static void a_grant_after_more_than_the_lease_is_a_grant_once_it_is_extended(void) {
    claim of = begin(SCRIPT(slowly(granted, 25 * SECOND)), 60000);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    CHECK_EQUAL(after_start_us(of.call.asked_us), 25 * SECOND);
    CHECK(!of.is_sent);
}

static void only_the_last_attempt_counts_as_the_wait(void) {
    claim of = begin(SCRIPT(slowly(busy, 30 * SECOND), granted), 60000);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    CHECK_CALLS(world.extend, 0);
    CHECK_EQUAL(after_start_us(of.call.asked_us), 30 * SECOND);
}

static void a_grant_that_was_lost_when_extended_is_asked_for_again(void) {
    claim of = begin(SCRIPT(slowly(granted, 25 * SECOND), granted), 60000);
    world.extend = SCRIPT(lost);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    CHECK_CALLS(world.acquire, 2);
    CHECK_CALLS(world.extend, 1);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
    CHECK_EQUAL(after_start_us(of.call.asked_us), 25 * SECOND);
}

static void a_grant_that_was_lost_at_the_end_is_a_timeout(void) {
    claim of = begin(SCRIPT(slowly(granted, 60 * SECOND), granted), 60000);
    world.extend = SCRIPT(lost);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 1);
    CHECK(!of.is_sent);
}

static void a_grant_that_was_lost_without_a_wait_is_busy(void) {
    claim of = begin(SCRIPT(slowly(granted, 150 * MS), granted), 0);
    of.call.lease_ms = 1000;
    world.extend = SCRIPT(lost);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_BUSY);
    CHECK_CALLS(world.acquire, 1);
}

static void a_grant_that_could_not_be_extended_counts_from_when_it_was_asked_for(void) {
    const step failures[] = {unreachable, in_doubt, for_good(DLOCK_REFUSED),
                             for_good(DLOCK_CANCELED)};
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        claim of = begin(SCRIPT(busy, slowly(granted, 2 * SECOND)), 60000);
        world.extend = SCRIPT(failures[i]);
        CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
        CHECK_CALLS(world.acquire, 2);
        CHECK_CALLS(world.extend, 1);
        CHECK_EQUAL(after_start_us(of.call.asked_us), 10 * MS);
    }
}

static void a_grant_is_one_until_just_before_its_validity_ends(void) {
    int64_t valid_us = validity_end_us(0, LEASE_MS);
    claim of = begin(SCRIPT(slowly(granted, valid_us - 1)), 9000);
    of.call.deadline_us = START_US + valid_us - 1;
    world.extend = SCRIPT(unreachable);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
}

static void a_grant_whose_lease_is_over_is_none_and_is_to_be_withdrawn(void) {
    int64_t valid_us = validity_end_us(0, LEASE_MS);
    claim of = begin(SCRIPT(slowly(granted, valid_us)), 0);
    of.call.deadline_us = START_US + valid_us;
    world.extend = SCRIPT(for_good(DLOCK_REFUSED));
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_LOST);
    CHECK_CALLS(world.acquire, 1);
    CHECK(of.is_sent);
    const char *cause = "the lease had ended before the answer came";
    CHECK_BYTES(of.call.cause, strlen(of.call.cause), cause, strlen(cause));
}

static void a_grant_whose_extension_took_longer_than_the_lease_is_none(void) {
    claim of = begin(SCRIPT(slowly(granted, 25 * SECOND), busy), 60000);
    of.call.lease_ms = 100; /* and the extension takes an I/O timeout */
    world.extend = SCRIPT(slowly(granted, 10 * SECOND));
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_TIMEOUT);
    CHECK(of.is_sent);
}

static void a_lease_shorter_than_the_allowance_is_never_granted(void) {
    claim of = begin(SCRIPT(granted), 0);
    of.call.lease_ms = 2;
    CHECK(acquire(&of, &spin) != DLOCK_OK);
    CHECK(of.is_sent);
}

static void a_lock_whose_lease_was_over_is_asked_for_again(void) {
    claim of = begin(SCRIPT(slowly(granted, 25 * SECOND), busy, granted), 60000);
    world.extend = SCRIPT(unreachable);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    CHECK_CALLS(world.acquire, 3);
    CHECK_EQUAL((int64_t)world.sleeps, 2); /* the server has waited for neither */
    CHECK_EQUAL(of.call.asked_us, world.now_us);
}

/* -- anything may happen */

static step any_step(void) {
    const step all[] = {granted,     busy,     busy,        busy,
                        unreachable, in_doubt, refused_now, for_good(DLOCK_REFUSED)};
    step made = all[unit_random() % (sizeof(all) / sizeof(all[0]))];
    made.takes_us = unit_random_within(0, 100 * MS);
    if (unit_random() % 4 == 0) made.takes_us = unit_random_within(0, 30 * SECOND);
    return made;
}

static script any_script(void) {
    script made = {.count = STEPS_MAX};
    for (size_t i = 0; i < STEPS_MAX; i++)
        made.steps[i] = any_step();
    return made;
}

static void check_promises(const claim *of, dlock_status status, bool is_only_try) {
    const script *asked = &world.acquire;
    CHECK(asked->calls >= 1);
    CHECK_EQUAL(of->call.attempts, (int64_t)asked->calls);
    if (is_only_try) CHECK_EQUAL((int64_t)asked->calls, 1);
    if (asked->calls > 1) CHECK(asked->last_us < of->call.deadline_us);
    if (world.sleeps > 0) CHECK(world.slept_last_until_us <= of->call.deadline_us);
    int64_t from_us = is_only_try ? START_US : of->call.deadline_us;
    CHECK(world.now_us <= from_us + 200 * MS);
    if (status == DLOCK_OK)
        CHECK(world.now_us < validity_end_us(of->call.asked_us, of->call.lease_ms));
    if (status == DLOCK_BUSY) CHECK(is_only_try);
    if (status == DLOCK_TIMEOUT) CHECK(!is_only_try);
    if (status == DLOCK_UNREACHABLE) CHECK(!of->is_sent);
    if (status == DLOCK_IN_DOUBT) CHECK(of->is_sent);
}

static void whatever_happens_the_promises_are_kept(void) {
    for (int i = 0; i < 50000; i++) {
        bool is_only_try = unit_random() % 8 == 0;
        int64_t wait_ms = is_only_try ? 0 : unit_random_within(1, 60000);
        waiting_rule rule = unit_random() % 2 == 0 ? spin : parked;
        if (unit_random() % 2 == 0) rule.pause.max_ms = (uint32_t)unit_random_within(1, 5000);
        claim of = begin(any_script(), wait_ms);
        world.extend = any_script();
        world.extend.steps[unit_random() % STEPS_MAX].status = DLOCK_LOST;
        world.is_chance_random = true;
        if (unit_random() % 4 == 0) world.nap_us = 7 * MS;
        of.stop.fd = -1;
        of.call.lease_ms = (uint32_t)unit_random_within(1, 20000);
        check_promises(&of, acquire(&of, &rule), is_only_try);
    }
}

int main(void) {
    UNIT_RUN(a_grant_that_was_not_waited_for_is_not_extended);
    UNIT_RUN(a_grant_after_more_than_a_tenth_of_the_lease_is_extended);
    UNIT_RUN(a_grant_after_more_than_the_lease_is_a_grant_once_it_is_extended);
    UNIT_RUN(only_the_last_attempt_counts_as_the_wait);
    UNIT_RUN(a_grant_that_was_lost_when_extended_is_asked_for_again);
    UNIT_RUN(a_grant_that_was_lost_at_the_end_is_a_timeout);
    UNIT_RUN(a_grant_that_was_lost_without_a_wait_is_busy);
    UNIT_RUN(a_grant_that_could_not_be_extended_counts_from_when_it_was_asked_for);
    UNIT_RUN(a_grant_is_one_until_just_before_its_validity_ends);
    UNIT_RUN(a_grant_whose_lease_is_over_is_none_and_is_to_be_withdrawn);
    UNIT_RUN(a_grant_whose_extension_took_longer_than_the_lease_is_none);
    UNIT_RUN(a_lease_shorter_than_the_allowance_is_never_granted);
    UNIT_RUN(a_lock_whose_lease_was_over_is_asked_for_again);
    UNIT_RUN(whatever_happens_the_promises_are_kept);
    return unit_summary();
}
