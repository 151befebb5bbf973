/* SPDX-License-Identifier: BSD-3-Clause */
/* hotspot_hand_on_test.c - locks that are handed on without a word to the service. */
#include "hotspot_world.h"
#include "validity.h"

/* -- hand-on */

/* One holds it, and two gets it while it waits for lease_ms. */
static void hand_over(handle *one, handle *two, uint32_t lease_ms) {
    meanwhile(release, one);
    CHECK_EQUAL(acquire_for(two, lease_ms, WAIT_MS), DLOCK_OK);
}

static bool is_same_lock(const handle *one, const handle *two) {
    return one->of.call.fence == two->of.call.fence &&
           strcmp(one->of.call.token, two->of.call.token) == 0;
}

static void without_hand_on_every_release_goes_out(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    hand_over(one, two, LEASE_MS);
    CHECK_EQUAL(world.releases, 1);
    CHECK_EQUAL((int64_t)hotspot_hand_ons(world.layer), 0);
    release(two);
    end();
}

static void a_lock_is_handed_on_so_many_times_in_a_row(void) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 3});
    hotspot_add(world.layer, "n");
    handle *holder = holder_of("n");
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++) {
            handle *next = handle_of("n");
            hand_over(holder, next, LEASE_MS);
            CHECK_EQUAL(holder->status, DLOCK_OK);
            CHECK_EQUAL(is_same_lock(holder, next), i < 3);
            holder = next;
        }
        CHECK_EQUAL(world.acquires, round + 2);
        CHECK_EQUAL(world.releases, round + 1);
        CHECK_EQUAL((int64_t)hotspot_hand_ons(world.layer), (round + 1) * 3);
    }
    release(holder);
    end();
}

static void nobody_in_line_means_that_the_lock_is_given_back(void) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 3});
    hotspot_add(world.layer, "n");
    release(holder_of("n"));
    CHECK_EQUAL(world.releases, 1);
    handle *one = holder_of("n"), *two = handle_of("n");
    hand_over(one, two, LEASE_MS);
    release(two);
    CHECK_EQUAL(world.releases, 2);
    CHECK_EQUAL(world.acquires, 2);
    end();
}

static void the_row_begins_again_after_the_lock_was_given_back(void) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 1});
    hotspot_add(world.layer, "n");
    for (int i = 1; i <= 5; i++) {
        handle *one = holder_of("n"), *two = handle_of("n");
        hand_over(one, two, LEASE_MS);
        release(two);
        CHECK_EQUAL((int64_t)hotspot_hand_ons(world.layer), i);
    }
    end();
}

/* The lock has been held for so long when it is handed on to one who wants lease_ms. */
static bool is_asked_for_again(int64_t held_us, uint32_t lease_ms) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 3});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    int64_t asked_us = one->of.call.asked_us;
    world.now_us += held_us;
    hand_over(one, two, lease_ms);
    bool is_again = world.acquires == 2;
    CHECK_EQUAL(world.releases, 0);
    CHECK(strcmp(two->of.call.token, one->of.call.token) == 0); /* so that it is renewed */
    CHECK_EQUAL(two->of.is_sent, is_again);
    if (!is_again) {
        CHECK(is_same_lock(one, two));
        CHECK_EQUAL(two->of.call.lease_ms, LEASE_MS); /* what is left of the one before */
        CHECK_EQUAL(two->of.call.asked_us, asked_us);
        CHECK_EQUAL(two->of.call.remote_us, 0);
        CHECK_EQUAL(two->of.call.attempts, 0);
    } else {
        CHECK_EQUAL(two->of.call.lease_ms, lease_ms);
        CHECK_EQUAL(two->of.call.asked_us, world.now_us);
    }
    release(two);
    end();
    return is_again;
}

static void half_of_the_lease_that_is_asked_for_must_be_left(void) {
    int64_t valid_us = validity_end_us(0, LEASE_MS);
    CHECK(!is_asked_for_again(0, LEASE_MS));
    CHECK(!is_asked_for_again(valid_us - LEASE_MS / 2 * MS, LEASE_MS));
    CHECK(is_asked_for_again(valid_us - LEASE_MS / 2 * MS + 1, LEASE_MS));
    CHECK(is_asked_for_again(0, LEASE_MS * 2));
    CHECK(!is_asked_for_again(0, LEASE_MS));
    CHECK(!is_asked_for_again(valid_us - 5 * MS, 10));
    CHECK(is_asked_for_again(valid_us - 5 * MS + 1, 10));
}

static void a_lease_that_has_ended_is_not_handed_on(void) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 3});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    world.now_us = validity_end_us(START_US, LEASE_MS);
    hand_over(one, two, LEASE_MS);
    CHECK_EQUAL(world.releases, 1);
    CHECK(!is_same_lock(one, two));
    CHECK_EQUAL((int64_t)hotspot_hand_ons(world.layer), 0);
    release(two);
    end();
}

static void an_extended_lease_is_handed_on_as_it_is(void) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 3});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    world.now_us += 9000 * MS;
    extend(one);
    hand_over(one, two, LEASE_MS);
    CHECK_EQUAL(world.acquires, 1);
    CHECK_EQUAL(two->of.call.asked_us, START_US + 9000 * MS);
    release(two);
    end();
}

static void an_extension_that_failed_leaves_the_lease_as_it_was(void) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 3});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    world.now_us += 9000 * MS;
    world.says = DLOCK_UNREACHABLE;
    extend(one);
    world.says = DLOCK_OK;
    hand_over(one, two, LEASE_MS);
    CHECK_EQUAL(world.acquires, 2); /* one second is not enough */
    release(two);
    end();
}

static void a_renewal_that_fails_is_left_to_be_withdrawn_and_the_next_one_goes_out(void) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 3});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    world.now_us += 9000 * MS;
    meanwhile(release, one);
    world.says = DLOCK_TIMEOUT;
    acquire(two);
    CHECK_EQUAL(two->status, DLOCK_TIMEOUT);
    CHECK(two->of.is_sent);
    CHECK(strcmp(two->of.call.token, one->of.call.token) == 0);
    world.says = DLOCK_OK;
    handle *three = holder_of("n");
    CHECK(strcmp(three->of.call.token, one->of.call.token) != 0);
    CHECK(!three->of.is_sent);
    release(three);
    end();
}

static void a_renewal_that_fails_with_another_token_gives_back_what_was_handed_on(void) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 3});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    world.now_us += 9000 * MS;
    meanwhile(release, one);
    world.says = DLOCK_CANCELED;
    world.is_token_varied = true;
    acquire(two);
    CHECK_EQUAL(two->status, DLOCK_CANCELED);
    CHECK_EQUAL(world.releases, 1);
    CHECK(strcmp(world.released, one->of.call.token) == 0);
    end();
}

static void a_name_that_is_removed_is_still_handed_on_to_those_in_line(void) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 3});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    meanwhile(remove_name, one);
    hand_over(one, two, LEASE_MS);
    CHECK(is_same_lock(one, two));
    release(two);
    CHECK_EQUAL(world.releases, 1);
    end();
}

static void a_lock_that_an_extend_found_lost_is_not_handed_on(void) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 3});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    world.says = DLOCK_LOST;
    extend(one);
    world.says = DLOCK_OK;
    hand_over(one, two, LEASE_MS);
    CHECK(!is_same_lock(one, two));
    CHECK_EQUAL((int64_t)hotspot_hand_ons(world.layer), 0);
    CHECK_EQUAL(world.acquires, 2);
    release(two);
    end();
}

int main(void) {
    UNIT_RUN(a_lock_that_an_extend_found_lost_is_not_handed_on);
    UNIT_RUN(without_hand_on_every_release_goes_out);
    UNIT_RUN(a_lock_is_handed_on_so_many_times_in_a_row);
    UNIT_RUN(nobody_in_line_means_that_the_lock_is_given_back);
    UNIT_RUN(the_row_begins_again_after_the_lock_was_given_back);
    UNIT_RUN(half_of_the_lease_that_is_asked_for_must_be_left);
    UNIT_RUN(a_lease_that_has_ended_is_not_handed_on);
    UNIT_RUN(an_extended_lease_is_handed_on_as_it_is);
    UNIT_RUN(an_extension_that_failed_leaves_the_lease_as_it_was);
    UNIT_RUN(a_renewal_that_fails_is_left_to_be_withdrawn_and_the_next_one_goes_out);
    UNIT_RUN(a_renewal_that_fails_with_another_token_gives_back_what_was_handed_on);
    UNIT_RUN(a_name_that_is_removed_is_still_handed_on_to_those_in_line);
    return unit_summary();
}
