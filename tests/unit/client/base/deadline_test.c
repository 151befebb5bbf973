/* SPDX-License-Identifier: BSD-3-Clause */
/* deadline_test.c - points in time, and what is left until them. */
#include "base/deadline.h"

#include "unit.h"

enum { NOW_US = 1000000 };

TEST(a_wait_ends_that_many_milliseconds_from_now) {
    CHECK_EQUAL(deadline_after_ms(NOW_US, 1), NOW_US + 1000);
    CHECK_EQUAL(deadline_after_ms(NOW_US, 5000), NOW_US + 5000000);
}

TEST(no_wait_ends_now) {
    CHECK_EQUAL(deadline_after_ms(NOW_US, 0), NOW_US);
    CHECK_EQUAL(deadline_after_ms(0, 0), 0);
}

TEST(a_negative_wait_is_for_ever) {
    CHECK_EQUAL(deadline_after_ms(NOW_US, -1), DEADLINE_NEVER);
    CHECK_EQUAL(deadline_after_ms(NOW_US, INT64_MIN), DEADLINE_NEVER);
}

TEST(a_wait_beyond_the_end_of_the_clock_is_for_ever) {
    CHECK_EQUAL(deadline_after_ms(NOW_US, INT64_MAX), DEADLINE_NEVER);
    CHECK_EQUAL(deadline_after_ms(NOW_US, INT64_MAX / 1000), DEADLINE_NEVER);
    CHECK_EQUAL(deadline_after_ms(DEADLINE_NEVER - 1999, 2), DEADLINE_NEVER);
    CHECK_EQUAL(deadline_after_ms(DEADLINE_NEVER, 1), DEADLINE_NEVER);
}

TEST(the_last_wait_that_the_clock_can_hold_is_counted) {
    CHECK_EQUAL(deadline_after_ms(DEADLINE_NEVER - 2001, 2), DEADLINE_NEVER - 1);
    CHECK_EQUAL(deadline_after_ms(0, INT64_MAX / 1000), INT64_MAX / 1000 * 1000);
}

TEST(the_earlier_of_two_is_the_smaller) {
    CHECK_EQUAL(deadline_earlier(1, 2), 1);
    CHECK_EQUAL(deadline_earlier(2, 1), 1);
    CHECK_EQUAL(deadline_earlier(2, 2), 2);
    CHECK_EQUAL(deadline_earlier(DEADLINE_NEVER, NOW_US), NOW_US);
}

TEST(what_is_left_is_the_time_until_it) {
    CHECK_EQUAL(deadline_left_us(NOW_US + 1, NOW_US), 1);
    CHECK_EQUAL(deadline_left_us(NOW_US + 5000000, NOW_US), 5000000);
}

TEST(nothing_is_left_once_it_is_reached) {
    CHECK_EQUAL(deadline_left_us(NOW_US, NOW_US), 0);
    CHECK_EQUAL(deadline_left_us(NOW_US, NOW_US + 1), 0);
    CHECK_EQUAL(deadline_left_us(0, NOW_US), 0);
}

TEST(of_for_ever_all_is_left_whatever_the_time) {
    CHECK_EQUAL(deadline_left_us(DEADLINE_NEVER, 0), DEADLINE_NEVER);
    CHECK_EQUAL(deadline_left_us(DEADLINE_NEVER, NOW_US), DEADLINE_NEVER);
    CHECK_EQUAL(deadline_left_us(DEADLINE_NEVER, DEADLINE_NEVER), DEADLINE_NEVER);
}

int main(void) {
    return unit_main(NULL, NULL);
}
