/* SPDX-License-Identifier: BSD-3-Clause */
/* fence_test.c - the fence counter. It is one per process, so each case starts from where the one
 * before left it; only the first case sees it new. */
#include "fence.h"

#include "unit.h"

static void a_new_counter_has_given_nothing(void) {
    CHECK_EQUAL(fence_last(), 0);
}

static void the_first_fence_is_the_time(void) {
    CHECK_EQUAL(fence_next(1000), 1000);
    CHECK_EQUAL(fence_last(), 1000);
}

static void a_later_grant_has_the_later_time(void) {
    int64_t later_us = fence_last() + 500;
    CHECK_EQUAL(fence_next(later_us), later_us);
    CHECK_EQUAL(fence_last(), later_us);
}

static void grants_in_one_microsecond_count_on(void) {
    int64_t now_us = fence_last() + 1;
    for (int i = 0; i < 1000; i++)
        CHECK_EQUAL(fence_next(now_us), now_us + i);
}

static void the_fence_grows_while_the_clock_steps_back(void) {
    int64_t before = fence_last();
    CHECK_EQUAL(fence_next(before - 500), before + 1);
    CHECK_EQUAL(fence_next(0), before + 2);
    CHECK_EQUAL(fence_next(-1), before + 3);
}

static void the_next_fence_is_above_one_seen_elsewhere(void) {
    int64_t seen = fence_last() + 100000;
    fence_raise(seen);
    CHECK_EQUAL(fence_last(), seen);
    CHECK_EQUAL(fence_next(seen - 1), seen + 1);
}

static void the_time_counts_again_once_it_has_caught_up(void) {
    int64_t seen = fence_last() + 100000;
    fence_raise(seen);
    CHECK_EQUAL(fence_next(seen), seen + 1);
    CHECK_EQUAL(fence_next(seen + 10), seen + 10);
}

static void a_smaller_fence_seen_elsewhere_changes_nothing(void) {
    int64_t before = fence_last();
    fence_raise(before);
    fence_raise(before - 1);
    fence_raise(0);
    fence_raise(-1);
    CHECK_EQUAL(fence_last(), before);
    CHECK_EQUAL(fence_next(0), before + 1);
}

static void no_fence_is_ever_given_twice(void) {
    int64_t now_us = fence_last();
    for (int i = 0; i < 200000; i++) {
        int64_t before = fence_last();
        now_us += unit_random_within(-1000, 1000);
        if (unit_random() % 8 == 0) {
            int64_t seen = now_us + unit_random_within(-1000, 1000);
            fence_raise(seen);
            CHECK_EQUAL(fence_last(), seen > before ? seen : before);
            before = fence_last();
        }
        CHECK_EQUAL(fence_next(now_us), now_us > before ? now_us : before + 1);
        CHECK(fence_last() > before);
    }
}

static void a_forged_fence_is_not_followed(void) {
    int64_t before = fence_last();
    fence_raise(FENCE_RAISE_LIMIT);
    fence_raise(INT64_MAX);
    CHECK_EQUAL(fence_last(), before);
    fence_raise(FENCE_RAISE_LIMIT - 1);
    CHECK_EQUAL(fence_next(0), FENCE_RAISE_LIMIT);
}

int main(void) {
    UNIT_RUN(a_new_counter_has_given_nothing);
    UNIT_RUN(the_first_fence_is_the_time);
    UNIT_RUN(a_later_grant_has_the_later_time);
    UNIT_RUN(grants_in_one_microsecond_count_on);
    UNIT_RUN(the_fence_grows_while_the_clock_steps_back);
    UNIT_RUN(the_next_fence_is_above_one_seen_elsewhere);
    UNIT_RUN(the_time_counts_again_once_it_has_caught_up);
    UNIT_RUN(a_smaller_fence_seen_elsewhere_changes_nothing);
    UNIT_RUN(no_fence_is_ever_given_twice);
    UNIT_RUN(a_forged_fence_is_not_followed);
    return unit_summary();
}
