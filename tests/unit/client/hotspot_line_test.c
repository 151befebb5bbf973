/* SPDX-License-Identifier: BSD-3-Clause */
/* hotspot_line_test.c - those who wait in line for a local lock. */
#include "hotspot_world.h"

/* -- releasing outside and inside */

static void where_there_is_a_queue_the_next_one_need_not_wait_for_the_answer(void) {
    begin((hotspot_rule){.queue_max = 10, .is_queued_outside = true});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n");
    world.tries_meanwhile = handle_of("n");
    handle *other = world.tries_meanwhile;
    release(one);
    CHECK_EQUAL(other->status, DLOCK_OK);
    release(other);
    CHECK(is_local("n"));
    end();
}

static void else_the_next_one_waits_for_the_answer(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *other = handle_of("n");
    world.tries_meanwhile = other;
    release(one);
    CHECK_EQUAL(other->status, DLOCK_BUSY);
    CHECK(is_local("n"));
    end();
}

/* -- in line */

static void who_waits_gets_it_when_it_is_given_back(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    meanwhile(release, one);
    acquire(two);
    CHECK_EQUAL(two->status, DLOCK_OK);
    CHECK_EQUAL(world.acquires, 2);
    CHECK_EQUAL(world.releases, 1);
    CHECK(two->of.call.fence > one->of.call.fence);
    release(two);
    CHECK(is_local("n"));
    end();
}

static void who_came_first_is_served_first(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n"), *three = handle_of("n");
    meanwhile(acquire, three); /* while two sleeps; and while three sleeps: */
    meanwhile(release, one);
    acquire(two);
    CHECK_EQUAL(two->status, DLOCK_OK);
    CHECK_EQUAL(three->status, DLOCK_TIMEOUT);
    release(two);
    end();
}

static void a_wait_in_line_ends_at_the_deadline(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    acquire(two);
    CHECK_EQUAL(two->status, DLOCK_TIMEOUT);
    CHECK_EQUAL(world.now_us, START_US + WAIT_MS * MS);
    CHECK_EQUAL(two->of.call.attempts, 0);
    CHECK_EQUAL(two->of.call.remote_us, 0);
    CHECK(two->of.call.cause[0] != '\0');
    CHECK_EQUAL(world.acquires, 1);
    release(one);
    CHECK(is_local("n"));
    end();
}

static void a_wait_in_line_can_be_canceled(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    meanwhile(cancel, two);
    acquire(two);
    CHECK_EQUAL(two->status, DLOCK_CANCELED);
    CHECK_EQUAL(world.now_us, START_US);
    atomic_store(&world.is_canceled, false);
    release(one);
    CHECK(is_local("n"));
    end();
}

static void who_leaves_the_middle_of_the_line_leaves_the_others_in_it(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n"), *three = handle_of("n");
    handle *four = handle_of("n");
    meanwhile(try, four); /* it is refused, and is not in line */
    meanwhile(acquire, three);
    /* Three sleeps until its deadline, which is that of two as well: both leave. */
    acquire(two);
    CHECK_EQUAL(four->status, DLOCK_BUSY);
    CHECK_EQUAL(three->status, DLOCK_TIMEOUT);
    CHECK_EQUAL(two->status, DLOCK_TIMEOUT);
    meanwhile(release, one);
    acquire(four);
    CHECK_EQUAL(four->status, DLOCK_OK);
    release(four);
    CHECK(is_local("n"));
    end();
}

static void a_line_that_is_full_refuses_at_once(void) {
    begin((hotspot_rule){.queue_max = 1});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n"), *three = handle_of("n");
    meanwhile(acquire, three);
    meanwhile(release, one);
    acquire(two);
    CHECK_EQUAL(three->status, DLOCK_QUEUE_FULL);
    CHECK(three->of.call.cause[0] != '\0');
    CHECK_EQUAL(two->status, DLOCK_OK);
    CHECK_EQUAL(world.now_us, START_US);
    release(two);
    end();
}

static void a_refusal_by_the_service_frees_the_local_lock(void) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 5});
    hotspot_add(world.layer, "n");
    handle *one = handle_of("n");
    world.says = DLOCK_TIMEOUT;
    acquire(one);
    CHECK_EQUAL(one->status, DLOCK_TIMEOUT);
    world.says = DLOCK_OK;
    CHECK(is_local("n"));
    end();
}

static void a_release_that_fails_outside_frees_the_local_lock_too(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n");
    world.says = DLOCK_IN_DOUBT;
    release(one);
    CHECK_EQUAL(one->status, DLOCK_IN_DOUBT);
    world.says = DLOCK_OK;
    CHECK(is_local("n"));
    end();
}

/* -- removed meanwhile */

static void a_name_that_is_removed_while_it_is_held_harms_nobody(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    meanwhile(remove_name, one);
    meanwhile(try, handle_of("n")); /* goes out now */
    meanwhile(release, one);
    acquire(two);
    CHECK_EQUAL(two->status, DLOCK_OK);
    CHECK_EQUAL(world.acquires, 3);
    CHECK_EQUAL((int64_t)hotspot_count(world.layer), 0);
    release(two);
    CHECK_EQUAL(two->status, DLOCK_OK);
    CHECK_EQUAL(world.releases, 2);
    end();
}

static void a_name_that_is_removed_and_added_again_begins_anew(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n");
    hotspot_remove(world.layer, "n");
    hotspot_add(world.layer, "n");
    handle *two = holder_of("n"); /* the service has granted it twice: it is no business of ours */
    CHECK_EQUAL(world.acquires, 2);
    release(one);
    try(handle_of("n")); /* two has it still */
    CHECK_EQUAL(world.acquires, 2);
    release(two);
    CHECK(is_local("n"));
    end();
}

static void a_name_that_is_removed_while_all_wait_in_vain_is_gone_at_the_end(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    meanwhile(remove_name, one);
    acquire(two);
    CHECK_EQUAL(two->status, DLOCK_TIMEOUT);
    release(one); /* a leak would be seen by the sanitizer */
    end();
}

int main(void) {
    UNIT_RUN(where_there_is_a_queue_the_next_one_need_not_wait_for_the_answer);
    UNIT_RUN(else_the_next_one_waits_for_the_answer);
    UNIT_RUN(who_waits_gets_it_when_it_is_given_back);
    UNIT_RUN(who_came_first_is_served_first);
    UNIT_RUN(a_wait_in_line_ends_at_the_deadline);
    UNIT_RUN(a_wait_in_line_can_be_canceled);
    UNIT_RUN(who_leaves_the_middle_of_the_line_leaves_the_others_in_it);
    UNIT_RUN(a_line_that_is_full_refuses_at_once);
    UNIT_RUN(a_refusal_by_the_service_frees_the_local_lock);
    UNIT_RUN(a_release_that_fails_outside_frees_the_local_lock_too);
    UNIT_RUN(a_name_that_is_removed_while_it_is_held_harms_nobody);
    UNIT_RUN(a_name_that_is_removed_and_added_again_begins_anew);
    UNIT_RUN(a_name_that_is_removed_while_all_wait_in_vain_is_gone_at_the_end);
    return unit_summary();
}
