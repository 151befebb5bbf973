/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting_grant_test.c - what a grant is worth after the wait for it; and all promises. */
#include "deployment/presence.h"
#include "lease/lease.h"
#include "waiting_world.h"

/* -- the grant */

TEST(a_late_grant_is_extended_at_once) {
    int64_t valid_us = validity_end_us(0, LEASE_MS);
    const scenario rows[] = {
        {"not if it came soon", SCRIPT(slowly(granted, 1 * SECOND)), .rule = &parked,
         .wait_ms = 60000, .calls = 1, .ends_us = 1 * SECOND},
        {"after more than a tenth of the lease", SCRIPT(slowly(granted, 1 * SECOND + 1)),
         .rule = &parked, .wait_ms = 60000, .calls = 1, .extends = 1, .ends_us = 1 * SECOND + 1,
         .asked_us = 1 * SECOND + 1},
        {"after more than the lease, it is a grant", SCRIPT(slowly(granted, 25 * SECOND)),
         .rule = &parked, .wait_ms = 60000, .calls = 1, .extends = 1, .ends_us = 25 * SECOND,
         .asked_us = 25 * SECOND},
        {"only the last attempt counts as the wait", SCRIPT(slowly(busy, 30 * SECOND), granted),
         .rule = &parked, .wait_ms = 60000, .calls = 2, .ends_us = 30 * SECOND,
         .asked_us = 30 * SECOND},
        {"lost when extended: asked for again, without a pause, as the server had parked it",
         SCRIPT(slowly(granted, 25 * SECOND), granted), SCRIPT(lost), .rule = &parked,
         .wait_ms = 60000, .calls = 2, .extends = 1, .ends_us = 25 * SECOND,
         .asked_us = 25 * SECOND},
        {"lost when extended, at the end: a timeout", SCRIPT(slowly(granted, 60 * SECOND), granted),
         SCRIPT(lost), .rule = &parked, .wait_ms = 60000, .status = DLOCK_TIMEOUT, .calls = 1,
         .extends = 1, .ends_us = 60 * SECOND},
        {"likewise, and some of several names may be held still",
         SCRIPT(slowly(granted, 60 * SECOND), granted), SCRIPT(lost), .rule = &parked,
         .wait_ms = 60000, .name_count = 2, .status = DLOCK_TIMEOUT, .calls = 1, .extends = 1,
         .withdrawn = 1, .ends_us = 60 * SECOND},
        {"lost when extended, without a wait: busy", SCRIPT(slowly(granted, 150 * MS), granted),
         SCRIPT(lost), .lease_ms = 1000, .status = DLOCK_BUSY, .calls = 1, .extends = 1,
         .ends_us = 150 * MS},
        {"a grant until just before its validity ends", SCRIPT(slowly(granted, valid_us - 1)),
         SCRIPT(unreachable), .rule = &parked, .deadline_us = valid_us - 1, .calls = 1,
         .extends = 1, .ends_us = valid_us - 1},
        {"none once the lease is over, and withdrawn", SCRIPT(slowly(granted, valid_us)),
         SCRIPT(for_good(DLOCK_REFUSED)), .rule = &parked, .deadline_us = valid_us,
         .status = DLOCK_LOST, .calls = 1, .extends = 1, .withdrawn = 1, .ends_us = valid_us},
        {"a lock whose lease was over is asked for again",
         SCRIPT(slowly(granted, 25 * SECOND), busy, granted), SCRIPT(unreachable), .rule = &parked,
         .wait_ms = 60000, .calls = 3, .extends = 1, .ends_us = 25 * SECOND + 20 * MS,
         .asked_us = 25 * SECOND + 20 * MS},
        {"none if the extension took an I/O timeout, longer than the lease",
         SCRIPT(slowly(granted, 25 * SECOND), for_good(DLOCK_PROTOCOL)),
         SCRIPT(slowly(granted, 10 * SECOND)), .rule = &parked, .wait_ms = 60000, .lease_ms = 100,
         .status = DLOCK_PROTOCOL, .calls = 2, .extends = 1, .withdrawn = 1,
         .ends_us = 25 * SECOND + 210 * MS},
        {"none if the lease is shorter than the allowance", SCRIPT(granted), .lease_ms = 2,
         .status = DLOCK_LOST, .calls = 1, .withdrawn = 1},
    };
    PLAY(rows);
}

TEST(the_extension_of_a_late_grant_is_about_its_token_and_has_an_io_timeout) {
    run(begin(SCRIPT(slowly(granted, 1 * SECOND + 1)), 60000), &parked);
    CHECK(is_text(world.extend.seen[0].token, "token"));
    CHECK_EQUAL(after_start_us(world.extend.seen[0].limit_us), 1 * SECOND + 1 + 200 * MS);
}

/* By a store. */
TEST(a_late_grant_that_is_extended_by_less_lasts_as_long_as_the_longer_of_both) {
    const struct {
        uint32_t extended_ms, lease_ms;
        int64_t asked_us;
    } rows[] = {{2000, LEASE_MS, 0}, {8000, 8000, 4 * SECOND}};
    EACH_ROW(i, rows) {
        call *call = begin(SCRIPT(slowly(granted, 4 * SECOND)), 60000);
        world.extended_lease_ms = rows[i].extended_ms;
        CHECK_EQUAL(run(call, &parked), DLOCK_OK);
        CHECK_CALLS(world.extend, 1);
        CHECK_EQUAL(after_start_us(call->pub.asked_us), rows[i].asked_us);
        CHECK_EQUAL(call->pub.lease_ms, rows[i].lease_ms);
    }
}

TEST(of_several_names_some_may_be_held_although_the_grant_was_lost) {
    call *call = begin(SCRIPT(slowly(granted, 25 * SECOND), granted), 60000);
    call->attempt.name_count = 2;
    world.extend.steps = SCRIPT(lost);
    CHECK_EQUAL(run(call, &parked), DLOCK_OK);
    CHECK_EQUAL(fake.withdrawn, 1);
    CHECK(is_text(fake.withdrawn_token, "token"));
    CHECK(is_text(world.acquire.seen[1].token, "token~2"));
}

TEST(a_grant_that_could_not_be_extended_counts_from_when_it_was_asked_for) {
    const step failures[] = {unreachable, in_doubt, for_good(DLOCK_REFUSED),
                             for_good(DLOCK_NO_REPLICAS)};
    EACH_ROW(i, failures) {
        play(&(scenario){"counts from when it was asked for",
                         SCRIPT(busy, slowly(granted, 2 * SECOND)), SCRIPT(failures[i]),
                         .rule = &parked, .wait_ms = 60000, .calls = 2, .extends = 1,
                         .ends_us = 2 * SECOND + 10 * MS, .asked_us = 10 * MS});
    }
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

static steps any_script(void) {
    steps made = {.count = STEPS_MAX};
    for (size_t i = 0; i < STEPS_MAX; i++)
        made.each[i] = any_step();
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
        world.extend.steps = any_script();
        world.extend.steps.each[unit_random() % STEPS_MAX].status = DLOCK_LOST;
        fake.is_chance_random = true;
        call->pub.lease_ms = (uint32_t)unit_random_within(1, 20000);
        check_promises(call, run(call, &rule), is_only_try);
    }
}

int main(void) {
    return unit_main(NULL, NULL);
}
