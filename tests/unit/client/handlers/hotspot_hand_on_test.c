/* SPDX-License-Identifier: BSD-3-Clause */
/* hotspot_hand_on_test.c - locks that are handed on without a request to the service. */
#include "deployment/presence.h"
#include "hotspot_world.h"
#include "lease/lease.h"

static void give_to_queued(handle *one, handle *two) {
    release(one);
    CHECK(go_on(two));
}

/* One holds the lock, and gives it back while two waits for it and wants lease_ms. */
static void hand_over(handle *one, handle *two, uint32_t lease_ms) {
    start_acquire_for(two, lease_ms, WAIT_MS);
    CHECK(two->is_waiting);
    give_to_queued(one, two);
}

static void begin_handing_on(void) {
    begin((hotspot){.queue_max = 10, .hand_on = 3});
    hot_names_add(&world.layer.names, "n");
}

TEST(without_hand_on_every_release_goes_out) {
    world.layer.hand_on = 0;
    handle *one = holder_of("n"), *two = handle_of("n");
    hand_over(one, two, LEASE_MS);
    CHECK_EQUAL(two->status, DLOCK_OK);
    CHECK_EQUAL(world.releases, 1);
    CHECK_EQUAL(atomic_load(&world.layer.hand_ons), 0);
    release(two);
}

TEST(a_lock_is_handed_on_this_many_times_in_a_row) {
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
        CHECK_EQUAL(atomic_load(&world.layer.hand_ons), (round + 1) * 3);
    }
    release(holder);
}

TEST(each_holder_has_the_next_fence_of_the_run) {
    handle *one = holder_of("n"), *two = handle_of("n"), *three = handle_of("n");
    hand_over(one, two, LEASE_MS);
    hand_over(two, three, LEASE_MS);
    CHECK_EQUAL(two->call.pub.fence, one->call.pub.fence + 1);
    CHECK_EQUAL(three->call.pub.fence, two->call.pub.fence + 1);
    release(three);
    handle *next = holder_of("n");
    CHECK(next->call.pub.fence > three->call.pub.fence);
    release(next);
}

TEST(without_a_run_of_fences_the_lock_goes_out) {
    world.has_no_runs = true;
    handle *one = holder_of("n"), *two = handle_of("n");
    hand_over(one, two, LEASE_MS);
    CHECK_EQUAL(two->status, DLOCK_OK);
    CHECK(!is_same_lock(one, two));
    CHECK_EQUAL(world.acquires, 2);
    release(two);
}

TEST(a_run_is_twice_as_long_as_the_last_row) {
    world.layer.hand_on = 100;
    uint64_t before = 0;
    static const uint64_t runs[] = {101, 2, 2};
    for (int i = 0; i < 3; i++) {
        release(holder_of("n")); /* nobody waits: a row of one */
        CHECK_EQUAL(world.fence - before, runs[i]);
        before = world.fence;
    }
    handle *one = holder_of("n"), *two = handle_of("n");
    hand_over(one, two, LEASE_MS);
    release(two);
    before = world.fence;
    release(holder_of("n"));
    CHECK_EQUAL(world.fence - before, 4);
}

TEST(a_lock_that_is_to_be_tied_to_a_session_reserves_no_run) {
    tie tie = {.is_endless = true};
    handle *one = handle_of("n");
    one->call.attempt.terms.tie = &tie;
    acquire(one);
    CHECK_EQUAL(world.fence, one->call.pub.fence);
    release(one);
}

/* A local lock has one holder: with it, readers of one process would wait for each other. */
TEST(shared_claims_pass_by_the_local_lock) {
    handle *writer = holder_of("n"), *reader = reader_of("n"), *other = reader_of("n");
    acquire(reader); /* the service decides, and has said yes */
    acquire(other);
    CHECK_EQUAL(reader->status, DLOCK_OK);
    CHECK_EQUAL(other->status, DLOCK_OK);
    CHECK_EQUAL(world.acquires, 3);
    CHECK(!is_same_lock(reader, other) && !is_same_lock(reader, writer));
    release(writer);
    release(reader);
    release(other);
    CHECK_EQUAL(world.releases, 3);
}

TEST(a_shared_lock_is_not_handed_to_a_waiter_nor_the_other_way_round) {
    handle *reader = reader_of("n"), *writer = handle_of("n"), *late = reader_of("n");
    acquire(reader);
    handle *holder = holder_of("n");
    queue_up(writer);
    release(reader); /* the writer still waits for the holder */
    CHECK(!go_on(writer));
    CHECK_EQUAL(world.releases, 1);
    start_acquire_for(late, LEASE_MS, WAIT_MS); /* asks the service, and is not in the queue */
    CHECK(!late->is_waiting);
    release(holder);
    CHECK(go_on(writer));
    CHECK(is_same_lock(holder, writer) && !is_same_lock(holder, late));
    release(late);
    release(writer);
}

TEST(with_an_empty_queue_the_lock_is_given_back) {
    release(holder_of("n"));
    CHECK_EQUAL(world.releases, 1);
    handle *one = holder_of("n"), *two = handle_of("n");
    hand_over(one, two, LEASE_MS);
    release(two);
    CHECK_EQUAL(world.releases, 2);
    CHECK_EQUAL(world.acquires, 2);
}

TEST(the_row_begins_again_after_the_lock_was_given_back) {
    world.layer.hand_on = 1;
    for (int i = 1; i <= 5; i++) {
        handle *one = holder_of("n"), *two = handle_of("n");
        hand_over(one, two, LEASE_MS);
        release(two);
        CHECK_EQUAL(atomic_load(&world.layer.hand_ons), i);
    }
}

/* The lock has been held for held_us when it is handed on to a call that wants lease_ms. */
static bool is_asked_for_again(int64_t held_us, uint32_t lease_ms) {
    unit_restart();
    handle *one = holder_of("n"), *two = handle_of("n");
    int64_t asked_us = one->call.pub.asked_us;
    fake.now_us += held_us;
    hand_over(one, two, lease_ms);
    bool is_again = world.acquires == 2;
    CHECK_EQUAL(two->status, DLOCK_OK);
    CHECK_EQUAL(world.releases, 0);
    CHECK(is_text(two->call.pub.token, one->call.pub.token)); /* so that it is renewed */
    CHECK_EQUAL(two->call.attempt.fate, TOKEN_HELD);
    if (!is_again) {
        CHECK(is_same_lock(one, two));
        CHECK_EQUAL(two->call.pub.lease_ms, LEASE_MS); /* the rest of the one before */
        CHECK_EQUAL(two->call.pub.asked_us, asked_us);
        CHECK_EQUAL(two->call.pub.remote_us, 0);
        CHECK_EQUAL(two->call.pub.attempts, 0);
    } else {
        CHECK_EQUAL(two->call.pub.lease_ms, lease_ms);
        CHECK_EQUAL(two->call.pub.asked_us, fake.now_us);
    }
    release(two);
    CHECK_EQUAL(fake.withdrawn, 0);
    return is_again;
}

TEST(half_of_the_lease_that_is_asked_for_must_be_left) {
    int64_t valid_us = validity_end_us(0, LEASE_MS);
    CHECK(!is_asked_for_again(0, LEASE_MS));
    CHECK(!is_asked_for_again(valid_us - LEASE_MS / 2 * MS, LEASE_MS));
    CHECK(is_asked_for_again(valid_us - LEASE_MS / 2 * MS + 1, LEASE_MS));
    CHECK(is_asked_for_again(0, LEASE_MS * 2));
    CHECK(!is_asked_for_again(0, LEASE_MS));
    CHECK(!is_asked_for_again(valid_us - 5 * MS, 10));
    CHECK(is_asked_for_again(valid_us - 5 * MS + 1, 10));
}

TEST(a_lease_that_has_ended_is_not_handed_on) {
    handle *one = holder_of("n"), *two = handle_of("n");
    queue_up(two);
    fake.now_us = validity_end_us(START_US, LEASE_MS);
    give_to_queued(one, two);
    CHECK_EQUAL(world.releases, 1);
    CHECK(!is_same_lock(one, two));
    CHECK_EQUAL(atomic_load(&world.layer.hand_ons), 0);
    release(two);
}

TEST(a_lock_that_is_gone_is_not_handed_on) {
    handle *one = holder_of("n"), *two = handle_of("n");
    one->call.was_lost = true; /* as the API says */
    hand_over(one, two, LEASE_MS);
    CHECK_EQUAL(world.releases, 1);
    CHECK(!is_same_lock(one, two));
    release(two);
}

/* -- extended and renewed */

TEST(an_extended_lease_is_handed_on_as_it_is) {
    handle *one = holder_of("n"), *two = handle_of("n");
    fake.now_us += 9000 * MS;
    extend_for(one, LEASE_MS);
    hand_over(one, two, LEASE_MS);
    CHECK_EQUAL(world.acquires, 1);
    CHECK_EQUAL(after_start_us(two->call.pub.asked_us), 9000 * MS);
    release(two);
}

TEST(a_renewed_lease_is_handed_on_as_it_is) {
    handle *one = holder_of("n"), *two = handle_of("n");
    fake.now_us += 9000 * MS;
    one->call.pub.asked_us = fake.now_us; /* by a renewal in the background */
    hand_over(one, two, LEASE_MS);
    CHECK_EQUAL(world.acquires, 1);
    CHECK_EQUAL(after_start_us(two->call.pub.asked_us), 9000 * MS);
    release(two);
}

TEST(an_extension_does_not_shorten_what_is_handed_on) {
    handle *one = holder_of("n"), *two = handle_of("n");
    int64_t asked_us = one->call.pub.asked_us;
    fake.now_us += 100 * MS;
    extend_for(one, 1000);
    one->call.pub.asked_us = asked_us; /* of the lease */
    hand_over(one, two, LEASE_MS);
    CHECK_EQUAL(world.acquires, 1);
    CHECK_EQUAL(two->call.pub.asked_us, START_US);
    CHECK_EQUAL(two->call.pub.lease_ms, LEASE_MS);
    release(two);
}

TEST(an_extension_that_failed_leaves_the_lease_as_it_was) {
    const dlock_status all[] = {DLOCK_UNREACHABLE, DLOCK_IN_DOUBT};
    for (size_t i = 0; i < 2; i++) {
        unit_restart();
        handle *one = holder_of("n"), *two = handle_of("n"), *three = handle_of("n");
        world.says = all[i];
        extend_for(one, LEASE_MS);
        world.says = DLOCK_OK;
        hand_over(one, two, LEASE_MS);
        CHECK(is_same_lock(one, two));
        fake.now_us += 9000 * MS;
        hand_over(two, three, LEASE_MS);
        CHECK_EQUAL(world.acquires, 2); /* one second is not enough */
        release(three);
    }
}

TEST(a_lock_that_an_extension_found_lost_is_not_handed_on) {
    handle *one = holder_of("n"), *two = handle_of("n");
    queue_up(two);
    world.says = DLOCK_LOST;
    extend_for(one, LEASE_MS);
    world.says = DLOCK_OK;
    one->call.pub.asked_us += 1; /* even if a renewal has worked before */
    give_to_queued(one, two);
    CHECK(!is_same_lock(one, two));
    CHECK_EQUAL(atomic_load(&world.layer.hand_ons), 0);
    CHECK_EQUAL(world.acquires, 2);
    release(two);
}

/* -- replicas and ties */

TEST(a_lock_that_fewer_replicas_know_is_asked_for_again) {
    handle *one = handle_of("n"), *two = handle_of("n"), *three = handle_of("n");
    one->call.attempt.terms.min_replicas = 1;
    two->call.attempt.terms.min_replicas = 1;
    three->call.attempt.terms.min_replicas = 2;
    acquire(one);
    hand_over(one, two, LEASE_MS);
    CHECK_EQUAL(world.acquires, 1);
    hand_over(two, three, LEASE_MS);
    CHECK_EQUAL(world.acquires, 2);
    CHECK(is_text(three->call.pub.token, one->call.pub.token));
    handle *four = handle_of("n");
    hand_over(three, four, LEASE_MS); /* it needs none */
    CHECK_EQUAL(world.acquires, 2);
    release(four);
}

TEST(a_lock_that_is_tied_to_a_session_is_not_handed_on) {
    tie tie = {.is_endless = true};
    handle *one = handle_of("n"), *two = handle_of("n");
    one->call.attempt.terms.tie = &tie;
    acquire(one);
    hand_over(one, two, LEASE_MS);
    CHECK_EQUAL(world.releases, 1);
    CHECK(!is_same_lock(one, two));
    release(two);
}

TEST(a_lock_that_is_to_be_tied_is_asked_for_again) {
    tie tie = {.is_endless = true};
    handle *one = holder_of("n"), *two = handle_of("n");
    two->call.attempt.terms.tie = &tie;
    hand_over(one, two, LEASE_MS);
    CHECK_EQUAL(world.acquires, 2);
    CHECK(is_text(two->call.pub.token, one->call.pub.token));
    release(two);
}

/* -- failures */

TEST(a_renewal_that_fails_is_withdrawn_by_the_service_and_the_next_call_goes_out) {
    handle *one = holder_of("n"), *two = handle_of("n");
    queue_up(two);
    fake.now_us += 9000 * MS;
    release(one);
    world.says = DLOCK_TIMEOUT;
    CHECK(go_on(two));
    CHECK_EQUAL(two->status, DLOCK_TIMEOUT);
    CHECK(is_text(two->call.pub.token, one->call.pub.token));
    CHECK_EQUAL(fake.withdrawn, 0);
    world.says = DLOCK_OK;
    handle *three = holder_of("n");
    CHECK(!is_text(three->call.pub.token, one->call.pub.token));
    CHECK_EQUAL(three->call.attempt.fate, TOKEN_UNHELD);
    release(three);
}

TEST(a_renewal_that_a_handler_between_refuses_gives_the_lock_back) {
    handle *one = holder_of("n"), *two = handle_of("n");
    queue_up(two);
    fake.now_us += 9000 * MS;
    release(one);
    world.says = DLOCK_BUSY;
    world.is_asked = world.is_withdrawing = false;
    CHECK(go_on(two));
    CHECK_EQUAL(two->status, DLOCK_BUSY);
    CHECK_EQUAL(fake.withdrawn, 1);
    CHECK(is_text(fake.withdrawn_token, one->call.pub.token));
}

TEST(a_renewal_with_another_token_gives_back_what_was_handed_on) {
    const dlock_status all[] = {DLOCK_CANCELED, DLOCK_OK};
    for (size_t i = 0; i < 2; i++) {
        unit_restart();
        handle *one = holder_of("n"), *two = handle_of("n");
        queue_up(two);
        fake.now_us += 9000 * MS;
        release(one);
        world.says = all[i];
        world.is_token_varied = true;
        CHECK(go_on(two));
        CHECK_EQUAL(two->status, all[i]);
        CHECK_EQUAL(fake.withdrawn, 1);
        CHECK(is_text(fake.withdrawn_token, one->call.pub.token));
        if (two->status == DLOCK_OK) release(two);
    }
}

TEST(a_name_that_is_removed_is_still_handed_on_to_queued_calls) {
    handle *one = holder_of("n"), *two = handle_of("n");
    queue_up(two);
    hot_names_remove(&world.layer.names, "n");
    release(one);
    CHECK(go_on(two));
    CHECK(is_same_lock(one, two));
    release(two);
    CHECK_EQUAL(world.releases, 1);
}

int main(void) {
    return unit_main(begin_handing_on, end);
}
