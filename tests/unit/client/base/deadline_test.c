/* SPDX-License-Identifier: BSD-3-Clause */
/* deadline_test.c - points in time, what is left until them, and the pause after an attempt that
 * failed. */
#include "base/deadline.h"

#include "unit.h"

#define NEVER DEADLINE_NEVER

TEST(a_wait_ends_that_many_milliseconds_from_now) {
    const struct {
        int64_t now_us, wait_ms, deadline_us;
    } rows[] = {
        {1000000, 1, 1001000},
        {1000000, 5000, 6000000},
        {1000000, 0, 1000000},
        {0, 0, 0},
        /* A negative wait, or one beyond the end of the clock, is for ever. */
        {1000000, -1, NEVER},
        {1000000, INT64_MIN, NEVER},
        {1000000, INT64_MAX, NEVER},
        {1000000, INT64_MAX / 1000, NEVER},
        {NEVER - 1999, 2, NEVER},
        {NEVER, 1, NEVER},
        /* The last waits that the clock can hold. */
        {NEVER - 2001, 2, NEVER - 1},
        {0, INT64_MAX / 1000, INT64_MAX / 1000 * 1000},
    };
    EACH_ROW(i, rows)
        CHECK_EQUAL(deadline_after_ms(rows[i].now_us, rows[i].wait_ms), rows[i].deadline_us);
}

TEST(the_earlier_of_two_is_the_smaller) {
    CHECK_EQUAL(deadline_earlier(1, 2), 1);
    CHECK_EQUAL(deadline_earlier(2, 1), 1);
    CHECK_EQUAL(deadline_earlier(2, 2), 2);
    CHECK_EQUAL(deadline_earlier(NEVER, 7), 7);
}

TEST(what_is_left_is_the_time_until_the_deadline) {
    const struct {
        int64_t deadline_us, now_us, left_us;
    } rows[] = {
        {8, 7, 1}, {5000007, 7, 5000000}, {7, 7, 0},         {7, 8, 0},
        {0, 7, 0}, {NEVER, 0, NEVER},     {NEVER, 7, NEVER}, {NEVER, NEVER, NEVER},
    };
    EACH_ROW(i, rows)
        CHECK_EQUAL(deadline_left_us(rows[i].deadline_us, rows[i].now_us), rows[i].left_us);
}

/* -- pauses */

static const backoff steady = {.min_ms = 10, .random_ms = 10};
static const backoff fixed = {.min_ms = 7};
static const backoff growing = {.min_ms = 10, .max_ms = 100};
static const backoff spread = {.min_ms = 10, .random_ms = 10, .max_ms = 1000};
static const backoff upside_down = {.min_ms = 50, .random_ms = 10, .max_ms = 20};
/* The smallest minimum and the largest maximum that the options allow: 2^27 ms are more than a
 * day. */
static const backoff widest = {.min_ms = 1, .max_ms = 24 * 3600 * 1000};
static const backoff largest = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
static const backoff largest_steady = {UINT32_MAX, UINT32_MAX, 0};

TEST(a_pause_is_what_the_rule_says) {
    const struct {
        const backoff *rule;
        uint32_t failures;
        uint64_t chance;
        int64_t left_us, pause_us;
    } rows[] = {
        /* From the minimum to just below minimum and random. */
        {&steady, 1, 0, NEVER, 10000},
        {&steady, 1, 10000, NEVER, 10000},
        {&steady, 1, 9999, NEVER, 19999},
        {&steady, 1, 19999, NEVER, 19999},
        {&fixed, 1, UINT64_MAX, NEVER, 7000},
        /* Without a maximum it does not grow. */
        {&steady, 2, 0, NEVER, 10000},
        {&steady, 1000, 9999, NEVER, 19999},
        {&steady, UINT32_MAX, 0, NEVER, 10000},
        /* With a maximum it doubles, with its random part, up to the maximum, and stays there. */
        {&growing, 1, 0, NEVER, 10000},
        {&growing, 2, 0, NEVER, 20000},
        {&growing, 3, 0, NEVER, 40000},
        {&growing, 4, 0, NEVER, 80000},
        {&growing, 5, 0, NEVER, 100000},
        {&growing, 6, 0, NEVER, 100000},
        {&growing, 31, 0, NEVER, 100000},
        {&growing, 32, 0, NEVER, 100000},
        {&growing, 33, 0, NEVER, 100000},
        {&growing, 63, 0, NEVER, 100000},
        {&growing, 64, 0, NEVER, 100000},
        {&growing, 65, 0, NEVER, 100000},
        {&growing, UINT32_MAX, 0, NEVER, 100000},
        {&spread, 1, 5000, NEVER, 15000},
        {&spread, 3, 5000, NEVER, 60000},
        {&upside_down, 1, 0, NEVER, 20000},
        {&widest, 20, 0, NEVER, INT64_C(1000) << 19},
        {&widest, 22, 0, NEVER, INT64_C(1000) << 21},
        {&widest, 28, 0, NEVER, INT64_C(24) * 3600 * 1000000},
        /* At the maximum it is still random. */
        {&growing, 20, 1, NEVER, 99999},
        {&growing, 20, 50000, NEVER, 50000},
        {&growing, 20, 50001, NEVER, 100000},
        /* It is never longer than what is left. */
        {&steady, 1, 9999, 19999, 19999},
        {&steady, 1, 9999, 19998, 19998},
        {&steady, 1, 0, 1, 1},
        {&steady, 1, 0, 0, 0},
        {&growing, 9, 0, 99999, 99999},
        {&largest_steady, 1, (uint64_t)UINT32_MAX * 1000 - 1, NEVER,
         (int64_t)UINT32_MAX * 2000 - 1},
    };
    EACH_ROW(i, rows)
        CHECK_EQUAL(
            backoff_pause_us(rows[i].rule, rows[i].failures, rows[i].chance, rows[i].left_us),
            rows[i].pause_us);
    for (uint32_t failures = 1; failures < 100; failures++) /* without an overflow */
        CHECK_EQUAL(backoff_pause_us(&largest, failures, 0, NEVER), (int64_t)UINT32_MAX * 1000);
    CHECK(backoff_pause_us(&steady, 1, UINT64_MAX, NEVER) < 20000);
}

TEST(pauses_are_spread_over_the_whole_range) {
    enum { TENTHS = 10, DRAWS = 10000 };
    int drawn[TENTHS] = {0};
    for (int i = 0; i < DRAWS; i++) {
        int64_t tenth = (backoff_pause_us(&steady, 1, unit_random(), NEVER) - 10000) / 1000;
        CHECK(tenth >= 0 && tenth < TENTHS);
        if (tenth >= 0 && tenth < TENTHS) drawn[tenth]++;
    }
    for (int i = 0; i < TENTHS; i++)
        CHECK(drawn[i] > DRAWS / TENTHS * 8 / 10 && drawn[i] < DRAWS / TENTHS * 12 / 10);
}

int main(void) {
    return unit_main(NULL, NULL);
}
