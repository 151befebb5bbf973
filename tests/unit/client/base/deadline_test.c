/* SPDX-License-Identifier: BSD-3-Clause */
/* deadline_test.c - points in time, and what is left until them. */
#include "base/clock.h"

#include "unit.h"

enum { NOW_US = 1000000 };

static void a_wait_ends_that_many_milliseconds_from_now(void) {
    CHECK_EQUAL(deadline_after_ms(NOW_US, 1), NOW_US + 1000);
    CHECK_EQUAL(deadline_after_ms(NOW_US, 5000), NOW_US + 5000000);
}

static void no_wait_ends_now(void) {
    CHECK_EQUAL(deadline_after_ms(NOW_US, 0), NOW_US);
    CHECK_EQUAL(deadline_after_ms(0, 0), 0);
}

static void a_negative_wait_is_for_ever(void) {
    CHECK_EQUAL(deadline_after_ms(NOW_US, -1), DEADLINE_NEVER);
    CHECK_EQUAL(deadline_after_ms(NOW_US, INT64_MIN), DEADLINE_NEVER);
}

static void a_wait_beyond_the_end_of_the_clock_is_for_ever(void) {
    CHECK_EQUAL(deadline_after_ms(NOW_US, INT64_MAX), DEADLINE_NEVER);
    CHECK_EQUAL(deadline_after_ms(NOW_US, INT64_MAX / 1000), DEADLINE_NEVER);
    CHECK_EQUAL(deadline_after_ms(DEADLINE_NEVER - 1999, 2), DEADLINE_NEVER);
    CHECK_EQUAL(deadline_after_ms(DEADLINE_NEVER, 1), DEADLINE_NEVER);
}

static void the_last_wait_that_the_clock_can_hold_is_counted(void) {
    CHECK_EQUAL(deadline_after_ms(DEADLINE_NEVER - 2001, 2), DEADLINE_NEVER - 1);
    CHECK_EQUAL(deadline_after_ms(0, INT64_MAX / 1000), INT64_MAX / 1000 * 1000);
}

static void the_earlier_of_two_is_the_smaller(void) {
    CHECK_EQUAL(deadline_earlier(1, 2), 1);
    CHECK_EQUAL(deadline_earlier(2, 1), 1);
    CHECK_EQUAL(deadline_earlier(2, 2), 2);
    CHECK_EQUAL(deadline_earlier(DEADLINE_NEVER, NOW_US), NOW_US);
}

static void what_is_left_is_the_time_until_it(void) {
    CHECK_EQUAL(deadline_left_us(NOW_US + 1, NOW_US), 1);
    CHECK_EQUAL(deadline_left_us(NOW_US + 5000000, NOW_US), 5000000);
}

static void nothing_is_left_once_it_is_reached(void) {
    CHECK_EQUAL(deadline_left_us(NOW_US, NOW_US), 0);
    CHECK_EQUAL(deadline_left_us(NOW_US, NOW_US + 1), 0);
    CHECK_EQUAL(deadline_left_us(0, NOW_US), 0);
}

static void of_for_ever_all_is_left_whatever_the_time(void) {
    CHECK_EQUAL(deadline_left_us(DEADLINE_NEVER, 0), DEADLINE_NEVER);
    CHECK_EQUAL(deadline_left_us(DEADLINE_NEVER, NOW_US), DEADLINE_NEVER);
    CHECK_EQUAL(deadline_left_us(DEADLINE_NEVER, DEADLINE_NEVER), DEADLINE_NEVER);
}

int main(void) {
    UNIT_RUN(a_wait_ends_that_many_milliseconds_from_now);
    UNIT_RUN(no_wait_ends_now);
    UNIT_RUN(a_negative_wait_is_for_ever);
    UNIT_RUN(a_wait_beyond_the_end_of_the_clock_is_for_ever);
    UNIT_RUN(the_last_wait_that_the_clock_can_hold_is_counted);
    UNIT_RUN(the_earlier_of_two_is_the_smaller);
    UNIT_RUN(what_is_left_is_the_time_until_it);
    UNIT_RUN(nothing_is_left_once_it_is_reached);
    UNIT_RUN(of_for_ever_all_is_left_whatever_the_time);
    return unit_summary();
}
