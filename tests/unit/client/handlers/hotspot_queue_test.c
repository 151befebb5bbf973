/* SPDX-License-Identifier: BSD-3-Clause */
/* hotspot_queue_test.c - calls that wait in the queue of a local lock. */
#include "hotspot_world.h"

static void begin_queue(void) {
    begin((hotspot){.queue_max = 10});
    hot_names_add(&world.layer.names, "n");
}

/* -- releasing outside and inside */

TEST(where_requests_stay_in_order_the_next_call_need_not_wait_for_the_reply) {
    world.layer.is_ordered = true;
    handle *one = holder_of("n"), *other = handle_of("n");
    world.tries_meanwhile = other;
    release(one);
    CHECK_EQUAL(other->status, DLOCK_OK);
    release(other);
    CHECK(is_local("n"));
}

TEST(else_the_next_call_waits_for_the_reply) {
    handle *one = holder_of("n"), *other = handle_of("n");
    world.tries_meanwhile = other;
    release(one);
    CHECK_EQUAL(other->status, DLOCK_BUSY);
    CHECK(is_local("n"));
}

/* -- a holder that does not release */

TEST(a_queued_call_goes_out_when_the_lease_of_the_holder_has_ended) {
    handle *one = holder_of("n"), *two = handle_of("n");
    start_acquire_for(two, LEASE_MS, 2 * LEASE_MS);
    CHECK(two->is_waiting);
    finish(two);
    CHECK_EQUAL(two->status, DLOCK_OK);
    CHECK_EQUAL(fake.now_us, validity_end_us(START_US, LEASE_MS));
    CHECK_EQUAL(world.acquires, 2);
    release(one); /* goes to the service, and is not about the local lock any more */
    CHECK_EQUAL(world.releases, 1);
    handle *three = handle_of("n");
    try(three);
    CHECK_EQUAL(three->status, DLOCK_BUSY);
    CHECK_EQUAL(world.acquires, 2);
    release(two);
    CHECK(is_local("n"));
}

TEST(a_single_try_goes_out_when_the_lease_of_the_holder_has_ended) {
    handle *one = holder_of("n"), *two = handle_of("n");
    fake.now_us = validity_end_us(START_US, LEASE_MS) - 1;
    try(two);
    CHECK_EQUAL(two->status, DLOCK_BUSY);
    fake.now_us++;
    try(two);
    CHECK_EQUAL(two->status, DLOCK_OK);
    extend_for(one, LEASE_MS); /* the local lock stays with the other handle */
    release(two);
    release(one);
    CHECK(is_local("n"));
}

TEST(each_holder_has_its_own_lease) {
    handle *holders[4] = {holder_of("n")};
    for (int i = 1; i < 4; i++)
        start_acquire_for(holders[i] = handle_of("n"), LEASE_MS, 10 * LEASE_MS);
    int64_t end_us = START_US;
    for (int i = 1; i < 4; i++) {
        finish(holders[i]);
        end_us = validity_end_us(end_us, LEASE_MS);
        CHECK_EQUAL(holders[i]->status, DLOCK_OK);
        CHECK_EQUAL(fake.now_us, end_us);
    }
    for (int i = 0; i < 4; i++)
        release(holders[i]);
    CHECK(is_local("n"));
}

TEST(a_lock_that_is_extended_or_renewed_keeps_its_local_lock) {
    handle *one = holder_of("n"), *two = handle_of("n");
    extend_for(one, 3 * LEASE_MS);
    start_acquire_for(two, LEASE_MS, 2 * LEASE_MS);
    finish(two);
    CHECK_EQUAL(two->status, DLOCK_TIMEOUT);
    lease *renewed = &one->call.lease;
    lease_init(renewed, &(lease_rule){.lease_ms = LEASE_MS});
    lease_begin(renewed, fake.now_us, 2 * LEASE_MS, fake.now_us);
    start_acquire_for(two, LEASE_MS, 3 * LEASE_MS);
    finish(two);
    CHECK_EQUAL(two->status, DLOCK_OK);
    CHECK_EQUAL(fake.now_us, lease_gone_at_us(renewed));
    release(one);
    release(two);
    CHECK(is_local("n"));
}

/* -- in the queue */

TEST(a_queued_call_goes_out_when_the_lock_is_given_back) {
    handle *one = holder_of("n"), *two = handle_of("n");
    queue_up(two);
    CHECK_EQUAL(atomic_load(&world.layer.waiting), 1);
    CHECK_EQUAL(world.acquires, 1);
    release(one);
    CHECK(two->call.waiter.is_ready);
    CHECK(go_on(two));
    CHECK_EQUAL(two->status, DLOCK_OK);
    CHECK_EQUAL(atomic_load(&world.layer.waiting), 0);
    CHECK_EQUAL(world.acquires, 2);
    CHECK_EQUAL(world.releases, 1);
    CHECK(two->call.pub.fence > one->call.pub.fence);
    release(two);
    CHECK(is_local("n"));
}

TEST(a_queued_call_that_is_advanced_for_nothing_keeps_its_place) {
    handle *one = holder_of("n"), *two = handle_of("n"), *three = handle_of("n");
    queue_up(two);
    queue_up(three);
    for (int i = 0; i < 10; i++)
        CHECK(!go_on(two) && !go_on(three));
    CHECK_EQUAL(atomic_load(&world.layer.waiting), 2);
    release(one);
    CHECK(!go_on(three) && go_on(two));
    release(two);
    CHECK(go_on(three));
    release(three);
}

TEST(first_come_first_served) {
    handle *holder = holder_of("n"), *queued[10];
    for (int i = 0; i < 10; i++)
        queue_up(queued[i] = handle_of("n"));
    for (int i = 0; i < 10; i++) {
        release(holder);
        for (int j = i; j < 10; j++)
            CHECK_EQUAL(queued[j]->call.waiter.is_ready, j == i);
        CHECK(go_on(queued[i]));
        CHECK_EQUAL(queued[i]->status, DLOCK_OK);
        holder = queued[i];
        holder->call.waiter.is_ready = false;
    }
    release(holder);
}

TEST(a_wait_in_the_queue_ends_at_the_deadline) {
    handle *one = holder_of("n"), *two = handle_of("n");
    acquire(two);
    CHECK_EQUAL(two->status, DLOCK_TIMEOUT);
    CHECK_EQUAL(after_start_us(fake.now_us), WAIT_MS * MS);
    CHECK_EQUAL(two->call.pub.attempts, 0);
    CHECK_EQUAL(two->call.pub.remote_us, 0);
    CHECK(two->call.pub.cause[0] != '\0');
    CHECK_EQUAL(world.acquires, 1);
    release(one);
    CHECK(is_local("n"));
}

TEST(a_wait_in_the_queue_can_be_canceled) {
    handle *one = holder_of("n"), *two = handle_of("n");
    fake.cancel_at_us = START_US + 100 * MS;
    acquire(two);
    CHECK_EQUAL(two->status, DLOCK_CANCELED);
    CHECK(is_text(two->call.pub.cause, "canceled"));
    CHECK_EQUAL(after_start_us(fake.now_us), 100 * MS);
    loop_cancel(fake.loop, false);
    release(one);
    CHECK(is_local("n"));
}

TEST(a_wait_for_ever_in_the_queue_can_be_canceled) {
    handle *one = holder_of("n"), *two = handle_of("n");
    extend_for(one, UINT32_MAX);
    fake.cancel_at_us = START_US + 10 * DAY;
    start_acquire_for(two, LEASE_MS, DLOCK_WAIT_FOREVER);
    finish(two);
    CHECK_EQUAL(two->status, DLOCK_CANCELED);
    loop_cancel(fake.loop, false);
    release(one);
}

TEST(a_call_that_was_canceled_before_does_not_queue) {
    handle *one = holder_of("n"), *two = handle_of("n");
    loop_cancel(fake.loop, true);
    start_acquire_for(two, LEASE_MS, WAIT_MS);
    CHECK(!two->is_waiting);
    CHECK_EQUAL(two->status, DLOCK_CANCELED);
    loop_cancel(fake.loop, false);
    release(one);
    CHECK(is_local("n"));
}

/* The service sees the cancel; the local lock goes on to the next call. */
TEST(a_cancel_that_meets_the_local_lock_passes_it_on) {
    handle *one = holder_of("n"), *two = handle_of("n"), *three = handle_of("n");
    queue_up(two);
    queue_up(three);
    release(one);
    world.says = DLOCK_CANCELED;
    CHECK(go_on(two));
    CHECK_EQUAL(two->status, DLOCK_CANCELED);
    world.says = DLOCK_OK;
    CHECK(go_on(three));
    CHECK_EQUAL(three->status, DLOCK_OK);
    release(three);
}

TEST(a_call_that_leaves_the_middle_of_the_queue_leaves_the_others_in_it) {
    handle *one = holder_of("n"), *two = handle_of("n"), *three = handle_of("n"),
           *four = handle_of("n");
    queue_up(two);
    start_acquire_for(three, LEASE_MS, WAIT_MS / 2);
    queue_up(four);
    try(handle_of("n")); /* is refused, and does not queue */
    CHECK_EQUAL(atomic_load(&world.layer.waiting), 3);
    finish(three);
    CHECK_EQUAL(three->status, DLOCK_TIMEOUT);
    CHECK_EQUAL(after_start_us(fake.now_us), WAIT_MS / 2 * MS);
    release(one);
    CHECK(!go_on(four) && go_on(two));
    release(two);
    CHECK(go_on(four));
    CHECK_EQUAL(four->status, DLOCK_OK);
    release(four);
    CHECK(is_local("n"));
}

TEST(a_full_queue_refuses_at_once) {
    world.layer.queue_max = 1;
    handle *one = holder_of("n"), *two = handle_of("n"), *three = handle_of("n");
    queue_up(two);
    acquire(three);
    CHECK_EQUAL(three->status, DLOCK_QUEUE_FULL);
    CHECK(three->call.pub.cause[0] != '\0');
    CHECK_EQUAL(fake.now_us, START_US);
    release(one);
    CHECK(go_on(two));
    queue_up(three); /* there is room again */
    release(two);
    CHECK(go_on(three));
    release(three);
}

TEST(a_refusal_by_the_service_frees_the_local_lock) {
    world.layer.hand_on = 5;
    handle *one = handle_of("n");
    world.says = DLOCK_TIMEOUT;
    acquire(one);
    CHECK_EQUAL(one->status, DLOCK_TIMEOUT);
    world.says = DLOCK_OK;
    CHECK(is_local("n"));
    CHECK_EQUAL(fake.withdrawn, 0);
}

TEST(a_release_that_fails_outside_frees_the_local_lock_too) {
    handle *one = holder_of("n");
    world.says = DLOCK_IN_DOUBT;
    release(one);
    CHECK_EQUAL(one->status, DLOCK_IN_DOUBT);
    world.says = DLOCK_OK;
    CHECK(is_local("n"));
}

/* -- removed meanwhile */

TEST(a_name_that_is_removed_while_it_is_held_harms_nobody) {
    handle *one = holder_of("n"), *two = handle_of("n");
    queue_up(two);
    hot_names_remove(&world.layer.names, "n");
    try(handle_of("n")); /* goes out now */
    CHECK_EQUAL(world.acquires, 2);
    release(one);
    CHECK(go_on(two));
    CHECK_EQUAL(two->status, DLOCK_OK);
    CHECK_EQUAL(world.acquires, 3);
    CHECK_EQUAL(atomic_load(&world.layer.names.count), 0);
    release(two);
    CHECK_EQUAL(two->status, DLOCK_OK);
    CHECK_EQUAL(world.releases, 2);
}

TEST(a_name_that_is_removed_and_added_again_begins_anew) {
    handle *one = holder_of("n");
    hot_names_remove(&world.layer.names, "n");
    hot_names_add(&world.layer.names, "n");
    handle *two = holder_of("n"); /* the service has granted it twice: no business of the layer */
    CHECK_EQUAL(world.acquires, 2);
    release(one);
    try(handle_of("n")); /* two has it still */
    CHECK_EQUAL(world.acquires, 2);
    release(two);
    CHECK(is_local("n"));
}

TEST(a_name_that_is_removed_while_all_wait_in_vain_is_gone_at_the_end) {
    handle *one = holder_of("n"), *two = handle_of("n");
    queue_up(two);
    hot_names_remove(&world.layer.names, "n");
    finish(two);
    CHECK_EQUAL(two->status, DLOCK_TIMEOUT);
    release(one); /* a leak would be seen by the sanitizer */
}

int main(void) {
    return unit_main(begin_queue, end);
}
