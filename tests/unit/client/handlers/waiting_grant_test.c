/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting_grant_test.c - what a grant is worth after the wait for it; and all promises. */
#include "deployment/presence.h"
#include "lease/lease.h"
#include "waiting_world.h"

/* -- the grant */

TEST(a_grant_that_came_soon_is_not_extended) {
    call *call = begin(SCRIPT(slowly(granted, 1 * SECOND)), 60000);
    CHECK_EQUAL(run(call, &parked), DLOCK_OK);
    CHECK_CALLS(world.extend, 0);
    CHECK_EQUAL(call->pub.asked_us, START_US);
}

TEST(a_grant_after_more_than_a_tenth_of_the_lease_is_extended) {
    call *call = begin(SCRIPT(slowly(granted, 1 * SECOND + 1)), 60000);
    CHECK_EQUAL(run(call, &parked), DLOCK_OK);
    CHECK_CALLS(world.acquire, 1);
    CHECK_CALLS(world.extend, 1);
    CHECK(is_text(world.extend.seen[0].token, "token"));
    CHECK_EQUAL(after_start_us(world.extend.seen[0].limit_us), 1 * SECOND + 1 + 200 * MS);
    CHECK_EQUAL(after_start_us(call->pub.asked_us), 1 * SECOND + 1);
    CHECK(call->pub.fence == FENCE);
}

/* By a store. */
TEST(a_late_grant_that_is_extended_by_less_lasts_as_long_as_the_longer_of_both) {
    call *call = begin(SCRIPT(slowly(granted, 4 * SECOND)), 60000);
    uint32_t lease_ms = call->pub.lease_ms;
    world.extended_lease_ms = 2000;
    CHECK_EQUAL(run(call, &parked), DLOCK_OK);
    CHECK_CALLS(world.extend, 1);
    CHECK_EQUAL(after_start_us(call->pub.asked_us), 0);
    CHECK_EQUAL(call->pub.lease_ms, lease_ms);
    call = begin(SCRIPT(slowly(granted, 4 * SECOND)), 60000);
    world.extended_lease_ms = 8000;
    CHECK_EQUAL(run(call, &parked), DLOCK_OK);
    CHECK_EQUAL(after_start_us(call->pub.asked_us), 4 * SECOND);
    CHECK_EQUAL(call->pub.lease_ms, 8000);
}

TEST(a_grant_after_more_than_the_lease_is_a_grant_once_it_is_extended) {
    call *call = begin(SCRIPT(slowly(granted, 25 * SECOND)), 60000);
    CHECK_EQUAL(run(call, &parked), DLOCK_OK);
    CHECK_EQUAL(after_start_us(call->pub.asked_us), 25 * SECOND);
    CHECK_EQUAL(fake.withdrawn, 0);
}

TEST(only_the_last_attempt_counts_as_the_wait) {
    call *call = begin(SCRIPT(slowly(busy, 30 * SECOND), granted), 60000);
    CHECK_EQUAL(run(call, &parked), DLOCK_OK);
    CHECK_CALLS(world.extend, 0);
    CHECK_EQUAL(after_start_us(call->pub.asked_us), 30 * SECOND);
}

TEST(a_grant_that_was_lost_when_extended_is_asked_for_again) {
    call *call = begin(SCRIPT(slowly(granted, 25 * SECOND), granted), 60000);
    world.extend = SCRIPT(lost);
    CHECK_EQUAL(run(call, &parked), DLOCK_OK);
    CHECK_CALLS(world.acquire, 2);
    CHECK_CALLS(world.extend, 1);
    check_begun(&world.acquire, 1, 25 * SECOND); /* without a pause: the server had parked it */
    CHECK_EQUAL(after_start_us(call->pub.asked_us), 25 * SECOND);
}

TEST(of_several_names_some_may_be_held_although_the_grant_was_lost) {
    call *call = begin(SCRIPT(slowly(granted, 25 * SECOND), granted), 60000);
    call->attempt.name_count = 2;
    world.extend = SCRIPT(lost);
    CHECK_EQUAL(run(call, &parked), DLOCK_OK);
    CHECK_EQUAL(fake.withdrawn, 1);
    CHECK(is_text(fake.withdrawn_token, "token"));
    CHECK(is_text(world.acquire.seen[1].token, "token~2"));
    call = begin(SCRIPT(slowly(granted, 60 * SECOND), granted), 60000);
    call->attempt.name_count = 2;
    world.extend = SCRIPT(lost);
    CHECK_EQUAL(run(call, &parked), DLOCK_TIMEOUT);
    CHECK_EQUAL(fake.withdrawn, 1);
}

TEST(a_grant_that_was_lost_at_the_end_is_a_timeout) {
    call *call = begin(SCRIPT(slowly(granted, 60 * SECOND), granted), 60000);
    world.extend = SCRIPT(lost);
    CHECK_EQUAL(run(call, &parked), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL(fake.withdrawn, 0);
}

TEST(a_grant_that_was_lost_without_a_wait_is_busy) {
    call *call = begin(SCRIPT(slowly(granted, 150 * MS), granted), 0);
    call->pub.lease_ms = 1000;
    world.extend = SCRIPT(lost);
    CHECK_EQUAL(run(call, &spin), DLOCK_BUSY);
    CHECK_CALLS(world.acquire, 1);
}

TEST(a_grant_that_could_not_be_extended_counts_from_when_it_was_asked_for) {
    const step failures[] = {unreachable, in_doubt, for_good(DLOCK_REFUSED),
                             for_good(DLOCK_NO_REPLICAS)};
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        call *call = begin(SCRIPT(busy, slowly(granted, 2 * SECOND)), 60000);
        world.extend = SCRIPT(failures[i]);
        CHECK_EQUAL(run(call, &parked), DLOCK_OK);
        CHECK_CALLS(world.acquire, 2);
        CHECK_CALLS(world.extend, 1);
        CHECK_EQUAL(after_start_us(call->pub.asked_us), 10 * MS);
        CHECK_EQUAL(fake.withdrawn, 0);
    }
}

TEST(a_grant_is_one_until_just_before_its_validity_ends) {
    int64_t valid_us = validity_end_us(0, LEASE_MS);
    call *call = begin(SCRIPT(slowly(granted, valid_us - 1)), 9000);
    call->pub.deadline_us = START_US + valid_us - 1;
    world.extend = SCRIPT(unreachable);
    CHECK_EQUAL(run(call, &parked), DLOCK_OK);
}

TEST(a_grant_whose_lease_is_over_is_none_and_is_withdrawn) {
    int64_t valid_us = validity_end_us(0, LEASE_MS);
    call *call = begin(SCRIPT(slowly(granted, valid_us)), 0);
    call->pub.deadline_us = START_US + valid_us;
    world.extend = SCRIPT(for_good(DLOCK_REFUSED));
    CHECK_EQUAL(run(call, &parked), DLOCK_LOST);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL(fake.withdrawn, 1);
    CHECK(is_text(call->pub.cause, "the lease had ended before the reply came"));
}

TEST(a_grant_whose_extension_took_longer_than_the_lease_is_none) {
    call *call = begin(SCRIPT(slowly(granted, 25 * SECOND), busy), 60000);
    call->pub.lease_ms = 100; /* and the extension takes an I/O timeout */
    world.extend = SCRIPT(slowly(granted, 10 * SECOND));
    CHECK_EQUAL(run(call, &parked), DLOCK_TIMEOUT);
    CHECK_EQUAL(fake.withdrawn, 1);
}

TEST(a_lease_shorter_than_the_allowance_is_never_granted) {
    call *call = begin(SCRIPT(granted), 0);
    call->pub.lease_ms = 2;
    CHECK(run(call, &spin) != DLOCK_OK);
    CHECK_EQUAL(fake.withdrawn, 1);
}

TEST(a_lock_whose_lease_was_over_is_asked_for_again) {
    call *call = begin(SCRIPT(slowly(granted, 25 * SECOND), busy, granted), 60000);
    world.extend = SCRIPT(unreachable);
    CHECK_EQUAL(run(call, &parked), DLOCK_OK);
    CHECK_CALLS(world.acquire, 3);
    CHECK_EQUAL(after_start_us(call->pub.asked_us), 25 * SECOND + 20 * MS);
    CHECK_EQUAL(call->pub.asked_us, fake.now_us);
}

TEST(a_store_may_grant_another_lease) {
    call *call = begin(SCRIPT(granted), 0);
    world.granted_lease_ms = 5000;
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    CHECK_EQUAL(call->pub.lease_ms, 5000);
}

TEST(the_token_of_the_grant_is_the_token_of_the_lock) {
    call *call = begin(SCRIPT(no_quorum, no_quorum, granted), 1000);
    world.is_token_varied = true;
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    CHECK(is_text(call->pub.token, "token~~"));
}

/* The lease of such a lock counts from the last heartbeat of the session, which renews it. */
TEST(a_late_grant_of_a_lock_that_lasts_as_long_as_the_session_needs_no_extension) {
    tie tie = {.is_endless = true};
    call *call = begin(SCRIPT(slowly(granted, 3 * SECOND)), 60000);
    call->attempt.terms.tie = &tie;
    CHECK_EQUAL(run(call, &parked), DLOCK_OK);
    CHECK_CALLS(world.acquire, 1);
    CHECK_CALLS(world.extend, 0);
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

static void check_promises(const call *call, dlock_status status, bool is_only_try) {
    const script *asked = &world.acquire;
    CHECK(asked->calls >= 1);
    CHECK_EQUAL(call->pub.attempts, asked->calls);
    if (is_only_try) CHECK_EQUAL(asked->calls, 1);
    if (asked->calls > 1) CHECK(asked->last_us < call->pub.deadline_us);
    int64_t from_us = is_only_try ? START_US : call->pub.deadline_us;
    CHECK(fake.now_us <= from_us + IO_MS * MS);
    if (status == DLOCK_OK)
        CHECK(fake.now_us < validity_end_us(call->pub.asked_us, call->pub.lease_ms));
    if (status == DLOCK_OK) CHECK_EQUAL(fake.withdrawn, 0);
    if (status == DLOCK_BUSY) CHECK(is_only_try);
    if (status == DLOCK_TIMEOUT) CHECK(!is_only_try);
    if (status == DLOCK_UNREACHABLE) CHECK_EQUAL(fake.withdrawn, 0);
    if (status == DLOCK_IN_DOUBT) CHECK_EQUAL(fake.withdrawn, 1);
    CHECK_EQUAL(is_text(call->pub.cause, ""), status == DLOCK_OK);
}

TEST(whatever_happens_the_promises_are_kept) {
    for (int i = 0; i < 500; i++) {
        bool is_only_try = unit_random() % 8 == 0;
        int64_t wait_ms = is_only_try ? 0 : unit_random_within(1, 60000);
        waiting rule = unit_random() % 2 == 0 ? spin : parked;
        if (unit_random() % 2 == 0) rule.pause.max_ms = (uint32_t)unit_random_within(1, 5000);
        call *call = begin(any_script(), wait_ms);
        world.extend = any_script();
        world.extend.steps[unit_random() % STEPS_MAX].status = DLOCK_LOST;
        fake.is_chance_random = true;
        call->pub.lease_ms = (uint32_t)unit_random_within(1, 20000);
        check_promises(call, run(call, &rule), is_only_try);
    }
}

int main(void) {
    return unit_main(NULL, NULL);
}
