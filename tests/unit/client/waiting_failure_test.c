/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting_failure_test.c - what fails while an acquire goes on, and cancelling it. */
#include "waiting_world.h"
#include <poll.h>

/* -- failures */

static void a_failure_that_passes_is_tried_again(void) {
    claim of = begin(SCRIPT(unreachable, refused_now, in_doubt, busy, unreachable, granted), 1000);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    CHECK_EQUAL(of.call.attempts, 6);
    for (size_t i = 0; i < 6; i++)
        check_begun(&world.acquire, i, (int64_t)i * 10 * MS);
}

static void a_failure_that_stays_is_returned_at_once(void) {
    const dlock_status all[] = {DLOCK_REFUSED,    DLOCK_PROTOCOL,  DLOCK_INVALID,
                                DLOCK_NO_MEMORY,  DLOCK_IN_DOUBT,  DLOCK_UNREACHABLE,
                                DLOCK_QUEUE_FULL, DLOCK_NO_QUORUM, DLOCK_CANCELED};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        claim of = begin(SCRIPT(for_good(all[i]), granted), 1000);
        CHECK_EQUAL(acquire(&of, &spin), all[i]);
        CHECK_CALLS(world.acquire, 1);
        CHECK_EQUAL((int64_t)world.sleeps, 0);
    }
}

static void a_failure_that_stays_ends_a_wait_that_went_on(void) {
    claim of = begin(SCRIPT(busy, unreachable, for_good(DLOCK_REFUSED), granted), 1000);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_REFUSED);
    CHECK_CALLS(world.acquire, 3);
}

static void a_failure_that_lasts_until_the_deadline_is_what_is_returned(void) {
    claim of = begin(SCRIPT(unreachable), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_UNREACHABLE);
    CHECK_CALLS(world.acquire, 10);
    CHECK_EQUAL(after_start_us(world.now_us), 100 * MS);
    CHECK(!of.is_sent);
    of = begin(SCRIPT(refused_now), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_REFUSED);
    of = begin(SCRIPT(slowly(unreachable, 150 * MS)), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_UNREACHABLE);
    CHECK_CALLS(world.acquire, 1);
}

static void unreachable_after_something_was_sent_is_in_doubt(void) {
    claim of = begin(SCRIPT(in_doubt, unreachable), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_IN_DOUBT);
    CHECK_CALLS(world.acquire, 10);
    CHECK(of.is_sent);
    /* The other way out: the answer came after the deadline. */
    of = begin(SCRIPT(in_doubt, slowly(unreachable, 150 * MS)), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_IN_DOUBT);
    CHECK_CALLS(world.acquire, 2);
}

/* dlock.h: DLOCK_UNREACHABLE is "nothing was sent". */
static void unreachable_for_good_after_something_was_sent_is_in_doubt(void) {
    claim of = begin(SCRIPT(in_doubt, for_good(DLOCK_UNREACHABLE)), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_IN_DOUBT);
    CHECK_CALLS(world.acquire, 2);
    CHECK(of.is_sent);
}

static void no_quorum_is_tried_again_while_time_is_left(void) {
    claim of = begin(SCRIPT(no_quorum, no_quorum, granted), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    of = begin(SCRIPT(no_quorum), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_NO_QUORUM);
    CHECK_CALLS(world.acquire, 10);
    of = begin(SCRIPT(no_quorum), 0);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_NO_QUORUM);
    CHECK_CALLS(world.acquire, 1);
}

/* There was no time left to ask enough of them. */
static void no_quorum_at_the_end_says_less_than_what_was_said_before(void) {
    claim of = begin(SCRIPT(busy, slowly(no_quorum, 150 * MS)), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_TIMEOUT);
}

static void a_timeout_after_something_was_sent_is_still_to_be_withdrawn(void) {
    claim of = begin(SCRIPT(in_doubt, busy), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_TIMEOUT);
    CHECK(of.is_sent);
}

/* -- cancelling */

static void a_wait_that_was_cancelled_before_asks_nobody(void) {
    claim of = begin(SCRIPT(granted), 1000);
    atomic_store(&world.is_canceled, true);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_CANCELED);
    CHECK_CALLS(world.acquire, 0);
    CHECK_EQUAL(of.call.attempts, 0);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
}

static void a_cancel_ends_the_pause_at_once(void) {
    claim of = begin(SCRIPT(busy, granted), 1000);
    world.cancel_at_us = START_US + 4 * MS;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_CANCELED);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL((int64_t)world.sleeps, 1);
    CHECK_EQUAL(world.slept[0].wake_fd, of.stop.fd);
    CHECK_EQUAL(after_start_us(world.now_us), 4 * MS);
}

static void a_cancel_at_the_end_of_the_last_pause_is_a_cancel(void) {
    claim of = begin(SCRIPT(busy), 10);
    world.cancel_at_us = START_US + 10 * MS;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_CANCELED);
}

static void a_cancel_during_an_attempt_is_seen_before_the_pause(void) {
    claim of = begin(SCRIPT(slowly(busy, 5 * MS), granted), 1000);
    world.cancel_at_us = START_US + 2 * MS;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_CANCELED);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
}

static void a_cancel_during_a_slice_is_seen_after_it(void) {
    claim of = begin(SCRIPT(slowly(busy, 30 * SECOND)), DLOCK_WAIT_FOREVER);
    world.cancel_at_us = START_US + 50 * SECOND;
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_CANCELED);
    CHECK_CALLS(world.acquire, 2);
}

static void a_cancel_does_not_undo_a_grant(void) {
    claim of = begin(SCRIPT(slowly(granted, 5 * MS)), 1000);
    world.cancel_at_us = START_US + 2 * MS;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
}

static void a_cancel_after_something_was_sent_leaves_it_to_be_withdrawn(void) {
    claim of = begin(SCRIPT(in_doubt), 1000);
    world.cancel_at_us = START_US + 25 * MS;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_CANCELED);
    CHECK_CALLS(world.acquire, 3);
    CHECK(of.is_sent);
}

static void a_claim_that_cannot_be_cancelled_waits(void) {
    claim of = begin(SCRIPT(busy, granted), 1000);
    of.stop = (interrupt){.fd = -1};
    world.cancel_at_us = START_US + 4 * MS;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    CHECK_EQUAL(world.slept[0].wake_fd, -1);
}

/* Else the next sleep would return at once, and the next, until the pause is over. */
static void a_wake_for_nothing_is_drained_and_the_pause_goes_on(void) {
    claim of = begin(SCRIPT(busy, granted), 1000);
    interrupt_stock *stock = interrupt_stock_new();
    of.stop.fd = interrupt_stock_take(stock);
    interrupt_wake(of.stop.fd);
    world.nap_us = 3 * MS;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 10 * MS);
    struct pollfd look = {.fd = of.stop.fd, .events = POLLIN};
    CHECK_EQUAL(poll(&look, 1, 0), 0);
    interrupt_stock_give(stock, of.stop.fd);
    interrupt_stock_free(stock);
}

int main(void) {
    UNIT_RUN(a_failure_that_passes_is_tried_again);
    UNIT_RUN(a_failure_that_stays_is_returned_at_once);
    UNIT_RUN(a_failure_that_stays_ends_a_wait_that_went_on);
    UNIT_RUN(a_failure_that_lasts_until_the_deadline_is_what_is_returned);
    UNIT_RUN(unreachable_after_something_was_sent_is_in_doubt);
    UNIT_RUN(unreachable_for_good_after_something_was_sent_is_in_doubt);
    UNIT_RUN(no_quorum_is_tried_again_while_time_is_left);
    UNIT_RUN(no_quorum_at_the_end_says_less_than_what_was_said_before);
    UNIT_RUN(a_timeout_after_something_was_sent_is_still_to_be_withdrawn);
    UNIT_RUN(a_wait_that_was_cancelled_before_asks_nobody);
    UNIT_RUN(a_cancel_ends_the_pause_at_once);
    UNIT_RUN(a_cancel_at_the_end_of_the_last_pause_is_a_cancel);
    UNIT_RUN(a_cancel_during_an_attempt_is_seen_before_the_pause);
    UNIT_RUN(a_cancel_during_a_slice_is_seen_after_it);
    UNIT_RUN(a_cancel_does_not_undo_a_grant);
    UNIT_RUN(a_cancel_after_something_was_sent_leaves_it_to_be_withdrawn);
    UNIT_RUN(a_claim_that_cannot_be_cancelled_waits);
    UNIT_RUN(a_wake_for_nothing_is_drained_and_the_pause_goes_on);
    return unit_summary();
}
