/* SPDX-License-Identifier: BSD-3-Clause */
/* fence_test.c - the fence counter. It is one per process, so each case starts from where the one
 * before left it; only the first case sees it new. */
#include "fence.h"

#include "unit.h"

/* Boot time passes as the wall clock does, unless a case says otherwise. */
static fence_time time_of(int64_t wall_us) {
    return (fence_time){.wall_us = wall_us, .boot_us = wall_us};
}

static int64_t next(int64_t wall_us) {
    return fence_next(time_of(wall_us), 0);
}

static void a_new_counter_has_given_nothing(void) {
    CHECK_EQUAL(fence_last(), 0);
}

static void the_first_fence_is_the_time(void) {
    CHECK_EQUAL(next(1000), 1000);
    CHECK_EQUAL(fence_last(), 1000);
}

static void a_later_grant_has_the_later_time(void) {
    int64_t later_us = fence_last() + 500;
    CHECK_EQUAL(next(later_us), later_us);
    CHECK_EQUAL(fence_last(), later_us);
}

static void grants_in_one_microsecond_count_on(void) {
    int64_t now_us = fence_last() + 1;
    for (int i = 0; i < 1000; i++)
        CHECK_EQUAL(next(now_us), now_us + i);
}

static void the_fence_grows_while_the_clock_steps_back(void) {
    int64_t before = fence_last();
    CHECK_EQUAL(next(before - 500), before + 1);
    CHECK_EQUAL(next(0), before + 2);
    CHECK_EQUAL(next(-1), before + 3);
}

static void the_next_fence_is_above_one_seen_elsewhere(void) {
    int64_t seen = fence_last() + 100000;
    fence_raise(seen);
    CHECK_EQUAL(fence_last(), seen);
    CHECK_EQUAL(next(seen - 1), seen + 1);
}

static void the_time_counts_again_once_it_has_caught_up(void) {
    int64_t seen = fence_last() + 100000;
    fence_raise(seen);
    CHECK_EQUAL(next(seen), seen + 1);
    CHECK_EQUAL(next(seen + 10), seen + 10);
}

static void a_smaller_fence_seen_elsewhere_changes_nothing(void) {
    int64_t before = fence_last();
    fence_raise(before);
    fence_raise(before - 1);
    fence_raise(0);
    fence_raise(-1);
    CHECK_EQUAL(fence_last(), before);
    CHECK_EQUAL(next(0), before + 1);
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
        CHECK_EQUAL(next(now_us), now_us > before ? now_us : before + 1);
        CHECK(fence_last() > before);
    }
}

static void a_grant_has_at_least_the_fence_that_was_asked_for(void) {
    int64_t wanted = fence_last() + 5000;
    CHECK_EQUAL(fence_next(time_of(fence_last() + 1), wanted), wanted);
    CHECK_EQUAL(fence_next(time_of(0), wanted), wanted + 1);
    CHECK_EQUAL(fence_next(time_of(0), 1), wanted + 2);
}

static void a_fence_may_be_asked_for_up_to_some_minutes_ahead(void) {
    int64_t now_us = fence_last() + 1000000;
    CHECK(fence_may_ask_for(now_us + FENCE_AHEAD_MAX_US, time_of(now_us)));
    CHECK(!fence_may_ask_for(now_us + FENCE_AHEAD_MAX_US + 1, time_of(now_us)));
}

static void requests_cannot_push_the_counter_step_by_step(void) {
    int64_t now_us = fence_last() + 1000000;
    int64_t wanted = now_us + FENCE_AHEAD_MAX_US;
    CHECK_EQUAL(fence_next(time_of(now_us), wanted), wanted);
    CHECK(!fence_may_ask_for(wanted + 2, time_of(now_us)));
    CHECK(fence_may_ask_for(wanted, time_of(now_us))); /* what was given may be asked for again */
}

static void a_clock_that_was_set_back_does_not_make_the_bound_stricter(void) {
    int64_t hour_us = INT64_C(3600) * 1000000;
    int64_t now_us = fence_last() + 1000000;
    next(now_us);
    fence_time set_back = {.wall_us = now_us - hour_us, .boot_us = now_us + 10};
    CHECK(fence_may_ask_for(now_us + FENCE_AHEAD_MAX_US + 10, set_back));
    CHECK(!fence_may_ask_for(now_us + FENCE_AHEAD_MAX_US + 11, set_back));
}

static void a_server_that_takes_over_behind_the_clock_just_goes_on(void) {
    int64_t before = fence_last();
    fence_resume(before);
    CHECK_EQUAL(fence_last(), before);
    fence_resume(before + 5);
    CHECK_EQUAL(fence_last(), before);
}

static void a_server_that_takes_over_ahead_of_the_clock_jumps_over_all_that_was_given(void) {
    int64_t before = fence_last(), now_us = before - 1;
    fence_resume(now_us);
    CHECK(fence_last() > now_us + FENCE_AHEAD_MAX_US);
    int64_t far = fence_last();
    fence_resume(far - 10 * FENCE_AHEAD_MAX_US); /* the clock was set back by more than the bound */
    CHECK(fence_last() > far);
}

static void a_forged_fence_is_not_followed(void) {
    int64_t before = fence_last();
    fence_raise(FENCE_RAISE_LIMIT);
    fence_raise(INT64_MAX);
    CHECK_EQUAL(fence_last(), before);
    fence_raise(FENCE_RAISE_LIMIT - 1);
    CHECK_EQUAL(next(0), FENCE_RAISE_LIMIT);
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
    UNIT_RUN(a_grant_has_at_least_the_fence_that_was_asked_for);
    UNIT_RUN(a_fence_may_be_asked_for_up_to_some_minutes_ahead);
    UNIT_RUN(requests_cannot_push_the_counter_step_by_step);
    UNIT_RUN(a_clock_that_was_set_back_does_not_make_the_bound_stricter);
    UNIT_RUN(a_server_that_takes_over_behind_the_clock_just_goes_on);
    UNIT_RUN(a_server_that_takes_over_ahead_of_the_clock_jumps_over_all_that_was_given);
    UNIT_RUN(a_forged_fence_is_not_followed);
    return unit_summary();
}
