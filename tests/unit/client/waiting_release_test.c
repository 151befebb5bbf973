/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting_release_test.c - releases that fail, and what is known then. */
#include "waiting_world.h"

/* -- release */

static void a_release_is_asked_for_once(void) {
    claim of = begin_release(SCRIPT(granted, lost));
    CHECK_EQUAL(release(&of, &spin), DLOCK_OK);
    CHECK_CALLS(world.release, 1);
    CHECK_EQUAL(after_start_us(world.release.seen[0].limit_us), 200 * MS);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
}

static void a_lock_that_was_lost_before_the_release_is_lost(void) {
    claim of = begin_release(SCRIPT(lost, granted));
    CHECK_EQUAL(release(&of, &spin), DLOCK_LOST);
    CHECK_CALLS(world.release, 1);
}

static void a_release_that_failed_for_good_is_not_repeated(void) {
    const dlock_status all[] = {DLOCK_REFUSED, DLOCK_PROTOCOL, DLOCK_NO_MEMORY, DLOCK_IN_DOUBT};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        claim of = begin_release(SCRIPT(for_good(all[i]), granted));
        CHECK_EQUAL(release(&of, &spin), all[i]);
        CHECK_CALLS(world.release, 1);
    }
}

static void a_release_that_failed_is_repeated_after_a_pause(void) {
    claim of = begin_release(SCRIPT(slowly(unreachable, 30 * MS), refused_now, granted));
    world.nap_us = 3 * MS; /* sleeps return early */
    CHECK_EQUAL(release(&of, &spin), DLOCK_OK);
    CHECK_CALLS(world.release, 3);
    check_begun(&world.release, 1, 40 * MS);
    check_begun(&world.release, 2, 50 * MS);
    for (size_t i = 0; i < 3; i++)
        CHECK_EQUAL(after_start_us(world.release.seen[i].limit_us), 200 * MS);
}

static void lost_after_a_lost_answer_means_that_the_release_had_worked(void) {
    claim of = begin_release(SCRIPT(in_doubt, lost));
    CHECK_EQUAL(release(&of, &spin), DLOCK_OK);
    CHECK_CALLS(world.release, 2);
    of = begin_release(SCRIPT(in_doubt, unreachable, lost));
    CHECK_EQUAL(release(&of, &spin), DLOCK_OK);
    CHECK_CALLS(world.release, 3);
}

static void lost_after_too_few_have_heard_it_means_that_the_release_had_worked(void) {
    claim of = begin_release(SCRIPT(no_quorum, lost));
    of.call.asked_us = START_US;
    CHECK_EQUAL(release(&of, &spin), DLOCK_OK);
}

static void lost_after_nothing_was_sent_is_lost(void) {
    claim of = begin_release(SCRIPT(unreachable, refused_now, lost));
    CHECK_EQUAL(release(&of, &spin), DLOCK_LOST);
    CHECK_CALLS(world.release, 3);
}

static void a_release_gives_up_within_one_io_timeout(void) {
    claim of = begin_release(SCRIPT(unreachable));
    CHECK_EQUAL(release(&of, &spin), DLOCK_UNREACHABLE);
    CHECK_CALLS(world.release, 20);
    check_begun(&world.release, 19, 190 * MS);
    CHECK(after_start_us(world.now_us) <= 200 * MS);
    of = begin_release(SCRIPT(refused_now));
    CHECK_EQUAL(release(&of, &spin), DLOCK_REFUSED);
    CHECK(after_start_us(world.now_us) <= 200 * MS);
}

static void a_release_whose_answer_never_came_is_in_doubt(void) {
    claim of = begin_release(SCRIPT(slowly(in_doubt, 200 * MS)));
    CHECK_EQUAL(release(&of, &spin), DLOCK_IN_DOUBT);
    CHECK_CALLS(world.release, 1);
    CHECK_EQUAL(after_start_us(world.now_us), 200 * MS);
}

static void a_release_that_was_once_in_doubt_stays_so(void) {
    claim of = begin_release(SCRIPT(in_doubt, unreachable));
    CHECK_EQUAL(release(&of, &spin), DLOCK_IN_DOUBT);
    CHECK_CALLS(world.release, 20);
}

static void a_release_that_has_no_time_for_a_pause_is_tried_once(void) {
    waiting_rule rule = spin;
    rule.io_timeout_ms = 10;
    claim of = begin_release(SCRIPT(unreachable));
    CHECK_EQUAL(release(&of, &rule), DLOCK_UNREACHABLE);
    CHECK_CALLS(world.release, 1);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
}

static void a_cancel_does_not_stop_a_release(void) {
    claim of = begin_release(SCRIPT(unreachable, granted));
    atomic_store(&world.is_canceled, true);
    CHECK_EQUAL(release(&of, &spin), DLOCK_OK);
    check_begun(&world.release, 1, 10 * MS);
    CHECK_EQUAL(world.slept[0].wake_fd, -1);
}

int main(void) {
    UNIT_RUN(a_release_is_asked_for_once);
    UNIT_RUN(a_lock_that_was_lost_before_the_release_is_lost);
    UNIT_RUN(a_release_that_failed_for_good_is_not_repeated);
    UNIT_RUN(a_release_that_failed_is_repeated_after_a_pause);
    UNIT_RUN(lost_after_a_lost_answer_means_that_the_release_had_worked);
    UNIT_RUN(lost_after_too_few_have_heard_it_means_that_the_release_had_worked);
    UNIT_RUN(lost_after_nothing_was_sent_is_lost);
    UNIT_RUN(a_release_gives_up_within_one_io_timeout);
    UNIT_RUN(a_release_whose_answer_never_came_is_in_doubt);
    UNIT_RUN(a_release_that_was_once_in_doubt_stays_so);
    UNIT_RUN(a_release_that_has_no_time_for_a_pause_is_tried_once);
    UNIT_RUN(a_cancel_does_not_stop_a_release);
    return unit_summary();
}
