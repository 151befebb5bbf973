/* SPDX-License-Identifier: BSD-3-Clause */
/* backoff_test.c - the pause after a failed attempt. */
#include "base/deadline.h"

#include "unit.h"

#define LONG_US INT64_MAX

static const backoff steady = {.min_ms = 10, .random_ms = 10};
static const backoff growing = {.min_ms = 10, .max_ms = 100};

TEST(the_shortest_pause_is_the_minimum) {
    CHECK_EQUAL(backoff_pause_us(&steady, 1, 0, LONG_US), 10000);
    CHECK_EQUAL(backoff_pause_us(&steady, 1, 10000, LONG_US), 10000);
}

TEST(the_longest_pause_is_just_below_minimum_and_random) {
    CHECK_EQUAL(backoff_pause_us(&steady, 1, 9999, LONG_US), 19999);
    CHECK_EQUAL(backoff_pause_us(&steady, 1, 19999, LONG_US), 19999);
}

TEST(every_chance_is_a_pause_within_the_bounds) {
    for (int i = 0; i < 100000; i++) {
        int64_t pause_us = backoff_pause_us(&steady, 1, unit_random(), LONG_US);
        CHECK(pause_us >= 10000 && pause_us < 20000);
    }
    CHECK(backoff_pause_us(&steady, 1, UINT64_MAX, LONG_US) < 20000);
}

TEST(pauses_are_spread_over_the_whole_range) {
    enum { TENTHS = 10, DRAWS = 10000 };
    int drawn[TENTHS] = {0};
    for (int i = 0; i < DRAWS; i++) {
        int64_t tenth = (backoff_pause_us(&steady, 1, unit_random(), LONG_US) - 10000) / 1000;
        if (tenth >= 0 && tenth < TENTHS) drawn[tenth]++;
    }
    for (int i = 0; i < TENTHS; i++)
        CHECK(drawn[i] > DRAWS / TENTHS * 8 / 10 && drawn[i] < DRAWS / TENTHS * 12 / 10);
}

TEST(without_a_random_part_the_pause_is_the_minimum) {
    const backoff fixed = {.min_ms = 7};
    CHECK_EQUAL(backoff_pause_us(&fixed, 1, UINT64_MAX, LONG_US), 7000);
}

TEST(without_a_maximum_it_does_not_grow) {
    CHECK_EQUAL(backoff_pause_us(&steady, 2, 0, LONG_US), 10000);
    CHECK_EQUAL(backoff_pause_us(&steady, 1000, 9999, LONG_US), 19999);
    CHECK_EQUAL(backoff_pause_us(&steady, UINT32_MAX, 0, LONG_US), 10000);
}

TEST(with_a_maximum_it_doubles_up_to_it) {
    const int64_t expected_ms[] = {10, 20, 40, 80, 100, 100, 100};
    for (uint32_t i = 0; i < sizeof(expected_ms) / sizeof(expected_ms[0]); i++)
        CHECK_EQUAL(backoff_pause_us(&growing, i + 1, 0, LONG_US), expected_ms[i] * 1000);
}

TEST(the_random_part_grows_with_it) {
    const backoff rule = {.min_ms = 10, .random_ms = 10, .max_ms = 1000};
    CHECK_EQUAL(backoff_pause_us(&rule, 1, 5000, LONG_US), 15000);
    CHECK_EQUAL(backoff_pause_us(&rule, 3, 5000, LONG_US), 60000);
}

TEST(a_maximum_below_the_minimum_is_the_pause) {
    const backoff rule = {.min_ms = 50, .random_ms = 10, .max_ms = 20};
    CHECK_EQUAL(backoff_pause_us(&rule, 1, 0, LONG_US), 20000);
}

TEST(it_stays_at_the_maximum_however_often_it_failed) {
    const uint32_t failures[] = {20, 21, 22, 31, 32, 33, 63, 64, 65, UINT32_MAX};
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++)
        CHECK_EQUAL(backoff_pause_us(&growing, failures[i], 0, LONG_US), 100000);
}

TEST(at_the_maximum_it_is_still_random) {
    CHECK_EQUAL(backoff_pause_us(&growing, 20, 1, LONG_US), 99999);
    CHECK_EQUAL(backoff_pause_us(&growing, 20, 50000, LONG_US), 50000);
    CHECK_EQUAL(backoff_pause_us(&growing, 20, 50001, LONG_US), 100000);
}

/* The smallest minimum and the largest maximum that the options allow: 2^27 ms are more than a
 * day. */
TEST(it_reaches_even_a_maximum_that_is_far_away) {
    const backoff rule = {.min_ms = 1, .max_ms = 24 * 3600 * 1000};
    CHECK_EQUAL(backoff_pause_us(&rule, 20, 0, LONG_US), INT64_C(1000) << 19);
    CHECK_EQUAL(backoff_pause_us(&rule, 22, 0, LONG_US), INT64_C(1000) << 21);
    CHECK_EQUAL(backoff_pause_us(&rule, 28, 0, LONG_US), INT64_C(24) * 3600 * 1000000);
}

TEST(the_largest_rule_does_not_overflow) {
    const backoff rule = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
    for (uint32_t failures = 1; failures < 100; failures++)
        CHECK_EQUAL(backoff_pause_us(&rule, failures, 0, LONG_US), (int64_t)UINT32_MAX * 1000);
    const backoff without_maximum = {UINT32_MAX, UINT32_MAX, 0};
    uint64_t last = (uint64_t)UINT32_MAX * 1000 - 1;
    CHECK_EQUAL(backoff_pause_us(&without_maximum, 1, last, LONG_US),
                (int64_t)UINT32_MAX * 2000 - 1);
}

TEST(it_is_never_longer_than_what_is_left) {
    CHECK_EQUAL(backoff_pause_us(&steady, 1, 9999, 19999), 19999);
    CHECK_EQUAL(backoff_pause_us(&steady, 1, 9999, 19998), 19998);
    CHECK_EQUAL(backoff_pause_us(&steady, 1, 0, 1), 1);
    CHECK_EQUAL(backoff_pause_us(&steady, 1, 0, 0), 0);
    CHECK_EQUAL(backoff_pause_us(&growing, 9, 0, 99999), 99999);
}

int main(void) {
    return unit_main(NULL, NULL);
}
