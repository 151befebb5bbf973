/* SPDX-License-Identifier: BSD-3-Clause */
/* fence_test.c - the fences of a server, and their clock, with a time that the cases make up. */
#include "fence.h"

#include "unit.h"

#define SECOND INT64_C(1000000)
#define MINUTE (60 * SECOND)
#define HOUR   (60 * MINUTE)
#define START  (1000 * HOUR)

static fence_time now;

/* Both clocks go on. */
static void pass(int64_t us) {
    now.wall_us += us;
    now.boot_us += us;
}

static void start_at(int64_t wall_us) {
    fence_start();
    now = (fence_time){.wall_us = wall_us, .boot_us = 5 * SECOND};
}

static int64_t next(void) {
    return fence_next(now, 0, 1);
}

static int64_t ask_for(int64_t fence) {
    return fence_next(now, fence, 1);
}

/* -- one server */

TEST(a_new_server_has_given_nothing) {
    start_at(START);
    CHECK_EQUAL(fence_last(), 0);
    CHECK_EQUAL(fence_base(now), START);
    CHECK_EQUAL(fence_clock(now), START);
}

TEST(the_first_fence_is_the_time) {
    start_at(START);
    CHECK_EQUAL(next(), START);
    CHECK_EQUAL(fence_last(), START);
}

TEST(a_later_grant_has_the_later_time) {
    start_at(START);
    next();
    pass(500);
    CHECK_EQUAL(next(), START + 500);
}

TEST(grants_in_one_microsecond_count_on) {
    start_at(START);
    for (int i = 0; i < 1000; i++)
        CHECK_EQUAL(next(), START + i);
}

TEST(a_wall_clock_that_is_set_back_changes_nothing) {
    start_at(START);
    next();
    pass(SECOND);
    now.wall_us -= HOUR;
    CHECK_EQUAL(next(), START + SECOND);
    pass(SECOND);
    CHECK_EQUAL(next(), START + 2 * SECOND);
}

TEST(a_wall_clock_that_is_set_ahead_is_followed) {
    start_at(START);
    next();
    now.wall_us += HOUR;
    CHECK_EQUAL(next(), START + HOUR);
    now.wall_us -= HOUR;
    pass(SECOND);
    CHECK_EQUAL(next(), START + HOUR + SECOND);
}

TEST(no_fence_is_ever_given_twice) {
    start_at(START);
    int64_t before = 0;
    for (int i = 0; i < 200000; i++) {
        pass(unit_random_within(0, 1000));
        if (unit_random() % 8 == 0) now.wall_us += unit_random_within(-SECOND, SECOND);
        int64_t wanted = fence_clock(now) + unit_random_within(-1000, 5 * SECOND);
        bool is_asked = unit_random() % 8 == 0 && fence_may_ask_for(wanted, now);
        int64_t fence = is_asked ? ask_for(wanted) : next();
        CHECK(fence > before);
        CHECK(fence >= now.wall_us);
        CHECK(!is_asked || fence >= wanted);
        CHECK(fence <= fence_base(now) + FENCE_LEAD_MAX_US);
        before = fence;
    }
}

/* -- requests for a fence */

TEST(a_grant_has_at_least_the_fence_that_was_asked_for) {
    start_at(START);
    CHECK_EQUAL(ask_for(START + MINUTE), START + MINUTE);
    CHECK_EQUAL(ask_for(START + MINUTE), START + MINUTE + 1);
    CHECK_EQUAL(ask_for(1), START + MINUTE + 2);
}

TEST(a_clock_that_leads_goes_on_at_half_its_speed) {
    start_at(START);
    ask_for(START + MINUTE);
    pass(MINUTE);
    CHECK_EQUAL(next(), START + MINUTE + MINUTE / 2);
    pass(MINUTE);
    CHECK_EQUAL(next(), START + 2 * MINUTE);
    pass(MINUTE);
    CHECK_EQUAL(next(), START + 3 * MINUTE);
}

TEST(a_fence_may_be_asked_for_up_to_five_minutes_ahead) {
    start_at(START);
    next();
    CHECK(fence_may_ask_for(START + FENCE_LEAD_MAX_US, now));
    CHECK(!fence_may_ask_for(START + FENCE_LEAD_MAX_US + 1, now));
}

TEST(requests_cannot_push_the_clock_step_by_step) {
    start_at(START);
    ask_for(START + FENCE_LEAD_MAX_US);
    CHECK(fence_may_ask_for(START + FENCE_LEAD_MAX_US, now)); /* what was given */
    CHECK(!fence_may_ask_for(START + FENCE_LEAD_MAX_US + 1, now));
    CHECK_EQUAL(fence_base(now), START);
}

TEST(a_lock_of_a_server_that_was_just_promoted_may_be_restored) {
    const int64_t limit = START + FENCE_LEAD_MAX_US + 2 * FENCE_TRANSIT_US;
    start_at(START);
    next();
    CHECK(fence_may_restore(limit, now));
    CHECK(!fence_may_restore(limit + 1, now));
    fence_see(limit, now);
    CHECK(fence_may_restore(limit, now)); /* it is known already */
    CHECK(!fence_may_restore(limit + 1, now));
    fence_hear(START, limit + SECOND, now); /* after several promotions */
    CHECK(fence_may_restore(limit + SECOND, now));
    CHECK(!fence_may_restore(limit + SECOND + 1, now));
}

TEST(a_clock_that_was_set_back_does_not_make_the_bound_stricter) {
    start_at(START);
    next();
    now.wall_us -= HOUR;
    pass(10);
    CHECK(fence_may_ask_for(START + FENCE_LEAD_MAX_US + 10, now));
    CHECK(!fence_may_ask_for(START + FENCE_LEAD_MAX_US + 11, now));
}

/* -- runs of fences */

TEST(a_run_is_given_to_nobody_else) {
    start_at(START);
    CHECK_EQUAL(fence_next(now, 0, 100), START + 99);
    CHECK_EQUAL(fence_next(now, 0, 10), START + 109);
    CHECK_EQUAL(fence_next(now, START + 500, 10), START + 509);
    CHECK_EQUAL(next(), START + 510);
    pass(SECOND);
    CHECK_EQUAL(next(), START + SECOND);
}

TEST(runs_are_refused_before_they_are_too_far_ahead) {
    start_at(START);
    int64_t count = 0;
    for (; fence_may_reserve(0, 10000, 0, now) && count < 100000; count++)
        fence_next(now, 0, 10000);
    CHECK(count > 1000);
    CHECK(fence_last() <= START + FENCE_LEAD_MAX_US + SECOND);
    int64_t before = fence_last();
    CHECK_EQUAL(next(), before + 1); /* a single fence is never refused */
    pass(MINUTE);
    CHECK(fence_may_reserve(0, 10000, 0, now));
}

TEST(runs_of_requests_that_wait_count_before_they_are_granted) {
    start_at(START);
    next();
    CHECK(fence_may_reserve(0, 10000, FENCE_PENDING_MAX - 10000, now));
    CHECK(!fence_may_reserve(0, 10001, FENCE_PENDING_MAX - 10000, now));
    int64_t limit = START + FENCE_LEAD_MAX_US;
    fence_see(limit, now);
    CHECK(fence_may_reserve(0, 10000, 0, now));
    CHECK(!fence_may_reserve(0, 10000, SECOND, now));
}

/* They are granted when the lead is used up, which is the worst moment. */
TEST(runs_that_have_waited_do_not_move_the_base) {
    start_at(START);
    for (int i = 0; i < 10; i++) {
        int64_t pending = 0;
        for (; fence_may_reserve(0, 10000, pending, now); pending += 10000) {
        }
        if (i == 0) ask_for(START + FENCE_LEAD_MAX_US);
        for (; pending > 0; pending -= 10000)
            fence_next(now, 0, 10000);
    }
    CHECK_EQUAL(fence_base(now), START);
    CHECK(fence_last() <= START + FENCE_LEAD_MAX_US + FENCE_PENDING_MAX + SECOND);
}

/* -- what others have */

TEST(the_next_fence_is_above_one_seen_elsewhere) {
    start_at(START);
    fence_see(START + 100, now);
    CHECK_EQUAL(fence_last(), START + 100);
    CHECK_EQUAL(next(), START + 101);
    fence_see(START + 50, now);
    CHECK_EQUAL(next(), START + 102);
}

TEST(a_fence_far_ahead_brings_its_clock_along) {
    start_at(START);
    fence_see(START + 10 * HOUR, now);
    CHECK(next() > START + 10 * HOUR);
    CHECK(fence_base(now) >= START + 10 * HOUR - FENCE_LEAD_LIMIT_US);
    pass(HOUR);
    CHECK_EQUAL(next(), fence_base(now));
}

TEST(a_clock_that_was_heard_goes_on) {
    start_at(START);
    next();
    fence_hear(START + HOUR, 0, now);
    CHECK_EQUAL(next(), START + HOUR);
    pass(MINUTE);
    CHECK_EQUAL(next(), START + HOUR + MINUTE);
    fence_hear(START, 0, now);
    CHECK_EQUAL(next(), START + HOUR + MINUTE + 1);
    CHECK(fence_may_ask_for(START + HOUR + FENCE_LEAD_MAX_US, now));
}

TEST(who_has_heard_of_a_lead_computes_the_same) {
    start_at(START);
    ask_for(START + 3 * MINUTE);
    int64_t base_us = fence_base(now), clock_us = fence_clock(now);
    pass(90 * SECOND);
    int64_t there = fence_clock(now);
    start_at(START - HOUR);
    fence_hear(base_us, clock_us, now);
    pass(90 * SECOND);
    CHECK_EQUAL(fence_clock(now), there);
}

TEST(only_its_own_steps_are_news_to_others) {
    start_at(START);
    next();
    uint64_t steps = fence_steps();
    pass(MINUTE);
    next();
    now.wall_us -= HOUR;
    next();
    fence_hear(START + 10 * HOUR, 0, now);
    next();
    fence_next(now, 0, 1000);
    CHECK_EQUAL((int64_t)fence_steps(), (int64_t)steps);
    ask_for(fence_clock(now) + MINUTE);
    CHECK_EQUAL((int64_t)fence_steps(), (int64_t)steps + 1);
    now.wall_us += 20 * HOUR;
    next();
    CHECK_EQUAL((int64_t)fence_steps(), (int64_t)steps + 2);
}

/* -- taking over */

TEST(who_takes_over_is_above_all_that_may_have_been_given) {
    start_at(START);
    fence_take_over(now, false);
    CHECK_EQUAL(next(), START + FENCE_LEAD_MAX_US);
}

TEST(who_is_promoted_is_above_what_its_master_gave_while_the_message_was_under_way) {
    start_at(START);
    fence_take_over(now, true);
    int64_t base_us = fence_base(now), clock_us = fence_clock(now), given = next();
    start_at(0); /* the replica, which hears of the clock late and is promoted at once */
    pass(FENCE_TRANSIT_US - 1);
    fence_hear(base_us, clock_us, now);
    fence_take_over(now, true);
    CHECK(next() > given);
}

TEST(who_is_promoted_is_above_its_master_even_if_it_has_heard_of_its_fence_only) {
    start_at(START);
    fence_take_over(now, true);
    pass(SECOND / 100);
    int64_t base_us = fence_base(now), heard = next();
    pass(FENCE_TRANSIT_US / 2);
    int64_t given = next();
    start_at(0);
    fence_hear(base_us - SECOND / 100, 0, now); /* before the master was promoted */
    fence_take_over(now, true); /* as high as its master, without anybody's knowledge */
    fence_see(heard, now);
    fence_take_over(now, true);
    CHECK(next() > given);
}

TEST(promotions_that_nobody_has_heard_of_do_not_add_up) {
    int64_t given = 0;
    start_at(START);
    for (int i = 0; i < 10; i++) { /* promoted, and demoted again, by whom the others do not hear */
        pass(SECOND);
        fence_take_over(now, true);
        CHECK(next() > given);
        given = next();
    }
    fence_start(); /* another replica of the same master */
    pass(SECOND);
    fence_take_over(now, true);
    CHECK(next() > given);
}

/* Each has heard of the takeover of the one before. */
static void replace_one_after_the_other(int times, int64_t every_us) {
    int64_t base_us = START, clock_us = START, given = 0;
    for (int i = 1; i <= times; i++) {
        start_at(START + i * every_us);
        fence_hear(base_us, clock_us, now);
        fence_take_over(now, true);
        base_us = fence_base(now);
        clock_us = fence_clock(now);
        CHECK(next() > given);
        given = next();
        base_us += every_us; /* when the next one hears of it */
        clock_us += every_us / 2;
    }
}

TEST(promotions_do_not_add_up) {
    replace_one_after_the_other(1000, 2 * FENCE_TRANSIT_US);
    CHECK_EQUAL(fence_base(now), now.wall_us);
    CHECK(fence_clock(now) <= now.wall_us + FENCE_LEAD_MAX_US + FENCE_TRANSIT_US);
}

TEST(fences_grow_even_if_promotions_follow_each_other_too_fast) {
    replace_one_after_the_other(1000, FENCE_TRANSIT_US / 10);
}

TEST(jumps_do_not_add_up) {
    int64_t base_us = START;
    for (int i = 1; i <= 100; i++) {
        start_at(START + i);
        fence_hear(base_us, 0, now);
        fence_take_over(now, false);
        base_us = fence_base(now);
        CHECK_EQUAL(next(), START + i + FENCE_LEAD_MAX_US);
    }
}

TEST(runs_go_on_after_a_promotion) {
    start_at(START);
    fence_take_over(now, true);
    CHECK(fence_may_reserve(0, 10000, 0, now));
    CHECK(!fence_may_reserve(fence_clock(now) + SECOND, 10000, 0, now));
}

/* Servers replace each other. What the successor has heard is some seconds old, its wall clock is
 * anything, and clients ask for fences as high as they may. */
TEST(fences_grow_whoever_takes_over) {
    int64_t heard_us = START, heard_clock_us = START, highest = 0, outage_us = 0;
    for (int round = 0; round < 3000; round++) {
        start_at(heard_us + unit_random_within(-3 * HOUR, 3 * HOUR) / (1 + round % 2 * 1000));
        fence_hear(heard_us, heard_clock_us, now);
        pass(outage_us);
        fence_take_over(now, true);
        for (int i = 0; i < 20; i++) {
            pass(unit_random_within(1, SECOND));
            if (i < 10) { /* what comes later, nobody hears */
                heard_us = fence_base(now);
                heard_clock_us = fence_clock(now);
            }
            int64_t wanted = fence_base(now) + FENCE_LEAD_MAX_US;
            int64_t fence = unit_random() % 4 == 0 ? ask_for(wanted) : next();
            CHECK(fence > highest);
            highest = fence;
        }
        /* Some of the time went by before the successor heard of it. */
        int64_t transit_us = unit_random_within(0, FENCE_TRANSIT_US - SECOND / 10);
        outage_us = fence_base(now) - heard_us + unit_random_within(100, SECOND);
        outage_us = outage_us > transit_us ? outage_us - transit_us : 0;
    }
}

/* -- when a fence was given out */

TEST(the_time_of_a_fence_is_known) {
    start_at(START);
    int64_t fence = next();
    pass(MINUTE);
    CHECK_EQUAL(fence_given_us(fence, now), START);
    CHECK_EQUAL(fence_given_us(fence + HOUR, now), now.wall_us);
}

TEST(the_time_of_a_fence_is_known_while_the_clock_leads) {
    start_at(START);
    int64_t early = next();
    pass(MINUTE);
    int64_t asked = ask_for(START + 3 * MINUTE);
    pass(MINUTE);
    int64_t slow = next();
    pass(20 * MINUTE);
    int64_t late = next();
    pass(MINUTE);
    CHECK_EQUAL(fence_given_us(early, now), START);
    CHECK_EQUAL(fence_given_us(asked, now), START + MINUTE);
    CHECK_EQUAL(fence_given_us(slow, now), START + 2 * MINUTE);
    CHECK_EQUAL(fence_given_us(late, now), START + 22 * MINUTE);
}

TEST(the_time_of_a_fence_is_known_after_the_clock_was_set_ahead) {
    start_at(START);
    int64_t fence = next();
    pass(MINUTE);
    now.wall_us += HOUR;
    next();
    pass(MINUTE);
    CHECK_EQUAL(fence_given_us(fence, now), now.wall_us - 2 * MINUTE);
}

TEST(the_time_of_a_fence_is_that_of_the_own_wall_clock) {
    start_at(START);
    fence_hear(START + HOUR, 0, now);
    int64_t fence = next();
    pass(MINUTE);
    CHECK_EQUAL(fence_given_us(fence, now), START);
}

int main(void) {
    return unit_main(NULL, NULL);
}
