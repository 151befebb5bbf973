/* SPDX-License-Identifier: BSD-3-Clause */
/* health_test.c - which servers are left alone, and for how long. */
#include "health.h"

#include "unit.h"

enum { BORNE = 2, FIRST_US = 100000, MAX_US = 2000000 };

static health server;

static void begin(void) {
    server = (health){0};
}

static void fail(int times, int64_t now_us) {
    for (int i = 0; i < times; i++)
        health_note(&server, false, now_us);
}

static void one_that_is_well_is_asked(void) {
    begin();
    CHECK(!health_is_left_alone(&server, 0));
    health_note(&server, true, 1);
    CHECK(!health_is_left_alone(&server, 2));
}

static void some_failures_are_borne(void) {
    begin();
    fail(BORNE, 1000);
    CHECK(!health_is_left_alone(&server, 1000));
}

static void after_more_it_is_left_alone_for_a_moment(void) {
    begin();
    fail(BORNE + 1, 1000);
    CHECK(health_is_left_alone(&server, 1000));
    CHECK(health_is_left_alone(&server, 1000 + FIRST_US - 1));
    CHECK(!health_is_left_alone(&server, 1000 + FIRST_US));
}

static void a_success_in_between_begins_anew(void) {
    begin();
    fail(BORNE, 1000);
    health_note(&server, true, 1000);
    fail(BORNE, 1000);
    CHECK(!health_is_left_alone(&server, 1000));
}

static void when_the_moment_is_over_one_may_try(void) {
    begin();
    fail(BORNE + 1, 0);
    CHECK(!health_is_left_alone(&server, FIRST_US));
    CHECK(health_is_left_alone(&server, FIRST_US));
    CHECK(health_is_left_alone(&server, FIRST_US + 1));
}

static void a_try_that_succeeds_ends_it(void) {
    begin();
    fail(BORNE + 1, 0);
    CHECK(!health_is_left_alone(&server, FIRST_US));
    health_note(&server, true, FIRST_US);
    CHECK(!health_is_left_alone(&server, FIRST_US));
    CHECK(!health_is_left_alone(&server, FIRST_US));
}

static void a_try_that_fails_makes_it_longer_up_to_a_bound(void) {
    begin();
    fail(BORNE + 1, 0);
    int64_t now_us = FIRST_US, pause_us = FIRST_US;
    for (int i = 0; i < 10; i++) {
        CHECK(!health_is_left_alone(&server, now_us));
        health_note(&server, false, now_us);
        pause_us = pause_us * 2 < MAX_US ? pause_us * 2 : MAX_US;
        CHECK(health_is_left_alone(&server, now_us + pause_us - 1));
        now_us += pause_us;
    }
    CHECK_EQUAL(pause_us, MAX_US);
}

static void one_that_was_to_try_and_never_told_does_not_block_it(void) {
    begin();
    fail(BORNE + 1, 0);
    CHECK(!health_is_left_alone(&server, FIRST_US));
    CHECK(!health_is_left_alone(&server, FIRST_US + 2 * FIRST_US));
}

static void many_failures_at_once_are_one(void) {
    begin();
    fail(1000, 0);
    CHECK(!health_is_left_alone(&server, FIRST_US));
}

int main(void) {
    UNIT_RUN(one_that_is_well_is_asked);
    UNIT_RUN(some_failures_are_borne);
    UNIT_RUN(after_more_it_is_left_alone_for_a_moment);
    UNIT_RUN(a_success_in_between_begins_anew);
    UNIT_RUN(when_the_moment_is_over_one_may_try);
    UNIT_RUN(a_try_that_succeeds_ends_it);
    UNIT_RUN(a_try_that_fails_makes_it_longer_up_to_a_bound);
    UNIT_RUN(one_that_was_to_try_and_never_told_does_not_block_it);
    UNIT_RUN(many_failures_at_once_are_one);
    return unit_summary();
}
