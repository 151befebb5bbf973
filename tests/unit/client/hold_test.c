/* SPDX-License-Identifier: BSD-3-Clause */
/* hold_test.c - how long a lock is ours, and when something is to be done about it. */
#include "hold.h"

#include "unit.h"
#include "validity.h"
#include <poll.h>

#define T0_US INT64_C(1000000000)
#define MS    INT64_C(1000)

enum { LEASE_MS = 10000, EVERY_MS = 3000, IO_MS = 200 };

static hold held;

static int64_t valid_until_us(int64_t asked_us, uint32_t lease_ms) {
    return validity_end_us(asked_us, lease_ms);
}

static void begin_with(hold_rule rule) {
    hold_init(&held, &rule);
    hold_begin(&held, T0_US, rule.lease_ms, true);
}

static void begin(void) {
    begin_with((hold_rule){.lease_ms = LEASE_MS, .io_timeout_ms = IO_MS});
}

static void begin_renewed(void) {
    begin_with(
        (hold_rule){.lease_ms = LEASE_MS, .renew_every_ms = EVERY_MS, .io_timeout_ms = IO_MS});
}

static void before_and_after_it_is_free(void) {
    hold_init(&held, &(hold_rule){.lease_ms = LEASE_MS});
    CHECK_EQUAL(hold_state(&held, T0_US), DLOCK_FREE);
    CHECK_EQUAL(hold_left_us(&held, T0_US), 0);
    hold_begin(&held, T0_US, LEASE_MS, true);
    hold_end(&held);
    CHECK_EQUAL(hold_state(&held, T0_US), DLOCK_FREE);
    CHECK_EQUAL(hold_left_us(&held, T0_US), 0);
    CHECK(!hold_expire(&held, INT64_MAX));
}

static void it_is_held_until_its_validity_ends(void) {
    begin();
    int64_t end_us = valid_until_us(T0_US, LEASE_MS);
    CHECK_EQUAL(hold_state(&held, T0_US), DLOCK_HELD);
    CHECK_EQUAL(hold_state(&held, end_us - 1), DLOCK_HELD);
    CHECK_EQUAL(hold_state(&held, end_us), DLOCK_GONE);
    CHECK_EQUAL(hold_left_us(&held, end_us - 5), 5);
    CHECK_EQUAL(hold_left_us(&held, end_us + 5), 0);
}

static void who_is_to_be_told_is_told_before_the_end(void) {
    hold_init(&held, &(hold_rule){.lease_ms = LEASE_MS});
    hold_set_lead(&held);
    hold_begin(&held, T0_US, LEASE_MS, true);
    CHECK_EQUAL(hold_gone_at_us(&held), valid_until_us(T0_US, LEASE_MS) - 50 * MS);
    hold_init(&held, &(hold_rule){.lease_ms = 100});
    hold_set_lead(&held);
    hold_begin(&held, T0_US, 100, true);
    CHECK_EQUAL(hold_gone_at_us(&held), valid_until_us(T0_US, 100) - 2 * MS);
}

static void without_renewal_it_is_never_suspect(void) {
    begin();
    CHECK_EQUAL(hold_suspect_at_us(&held), INT64_MAX);
    CHECK_EQUAL(hold_renew_at_us(&held), INT64_MAX);
    CHECK_EQUAL(hold_state(&held, hold_gone_at_us(&held) - 1), DLOCK_HELD);
}

static void a_renewal_is_due_after_its_time_and_overdue_after_an_io_timeout(void) {
    begin_renewed();
    CHECK_EQUAL(hold_renew_at_us(&held), T0_US + EVERY_MS * MS);
    CHECK_EQUAL(hold_suspect_at_us(&held), T0_US + (EVERY_MS + IO_MS) * MS);
    CHECK_EQUAL(hold_state(&held, hold_suspect_at_us(&held) - 1), DLOCK_HELD);
    CHECK_EQUAL(hold_state(&held, hold_suspect_at_us(&held)), DLOCK_SUSPECT);
    CHECK_EQUAL(hold_state(&held, hold_gone_at_us(&held) - 1), DLOCK_SUSPECT);
    CHECK_EQUAL(hold_state(&held, hold_gone_at_us(&held)), DLOCK_GONE);
}

static void little_time_after_a_renewal_is_halved(void) {
    begin_with((hold_rule){.lease_ms = 1000, .renew_every_ms = 900, .io_timeout_ms = IO_MS});
    int64_t due_us = hold_renew_at_us(&held), gone_us = hold_gone_at_us(&held);
    CHECK_EQUAL(due_us, T0_US + 900 * MS);
    CHECK_EQUAL(hold_suspect_at_us(&held), due_us + (gone_us - due_us) / 2);
}

static void an_extension_counts_from_when_it_was_asked_for(void) {
    begin_renewed();
    CHECK(hold_extend(&held, T0_US + 3000 * MS, LEASE_MS, T0_US + 3001 * MS));
    CHECK_EQUAL(hold_gone_at_us(&held), valid_until_us(T0_US + 3000 * MS, LEASE_MS) - 50 * MS);
    CHECK_EQUAL(hold_renew_at_us(&held), T0_US + 6000 * MS);
    CHECK_EQUAL(hold_state(&held, T0_US + 3300 * MS), DLOCK_HELD);
    CHECK_EQUAL(held.asked_us, T0_US + 3000 * MS);
}

static void an_extension_that_is_answered_too_late_does_not_count(void) {
    begin();
    int64_t gone_us = hold_gone_at_us(&held);
    CHECK(!hold_extend(&held, gone_us - 1, LEASE_MS, gone_us));
    CHECK_EQUAL(hold_state(&held, gone_us), DLOCK_GONE);
    CHECK(hold_extend(&held, gone_us - 2, LEASE_MS, gone_us - 1));
}

static void what_is_lost_stays_lost(void) {
    begin();
    hold_lose(&held, DLOCK_LOST);
    CHECK_EQUAL(hold_state(&held, T0_US), DLOCK_GONE);
    CHECK(!hold_extend(&held, T0_US + 1, LEASE_MS, T0_US + 2));
    hold_restore(&held, T0_US + 100, T0_US);
    hold_doubt(&held, T0_US, LEASE_MS);
    CHECK_EQUAL(hold_state(&held, T0_US), DLOCK_GONE);
    CHECK_EQUAL(hold_gone_at_us(&held), 0);
    CHECK_EQUAL(hold_renew_at_us(&held), INT64_MAX);
}

static void what_is_given_back_cannot_be_lost(void) {
    begin();
    hold_end(&held);
    hold_lose(&held, DLOCK_LOST);
    CHECK_EQUAL(hold_state(&held, T0_US), DLOCK_FREE);
}

static void it_expires_once_its_time_has_come(void) {
    begin();
    int64_t gone_us = hold_gone_at_us(&held);
    CHECK(!hold_expire(&held, gone_us - 1));
    CHECK(hold_expire(&held, gone_us));
    CHECK(!hold_extend(&held, gone_us - 5, LEASE_MS, gone_us - 1));
}

static void while_a_shorter_extension_is_under_way_only_that_is_certain(void) {
    begin();
    int64_t before_us = hold_gone_at_us(&held);
    CHECK_EQUAL(hold_doubt(&held, T0_US, 1000), before_us);
    CHECK_EQUAL(hold_gone_at_us(&held), valid_until_us(T0_US, 1000));
    hold_restore(&held, before_us, T0_US + 1);
    CHECK_EQUAL(hold_gone_at_us(&held), before_us);
    hold_doubt(&held, T0_US, 60000);
    CHECK_EQUAL(hold_gone_at_us(&held), before_us);
}

static void an_unanswered_extension_may_still_arrive(void) {
    begin();
    hold_note_doubt(&held, 2000);
    hold_note_doubt(&held, 5000);
    CHECK(hold_extend(&held, T0_US + 1, 60000, T0_US + 2));
    CHECK_EQUAL(hold_gone_at_us(&held), valid_until_us(T0_US + 1, 2000));
    hold_begin(&held, T0_US, LEASE_MS, false); /* with the same token */
    CHECK_EQUAL(hold_gone_at_us(&held), valid_until_us(T0_US, 2000));
    hold_begin(&held, T0_US, LEASE_MS, true); /* with another */
    CHECK_EQUAL(hold_gone_at_us(&held), valid_until_us(T0_US, LEASE_MS));
}

/* Renews whenever it is due; the result is when it is gone in the end. */
static int64_t renew_to_the_end(int *renewals) {
    for (*renewals = 0; hold_renew_at_us(&held) != INT64_MAX && *renewals < 1000; ++*renewals) {
        int64_t now_us = hold_renew_at_us(&held);
        uint32_t lease_ms = hold_renew_for_ms(&held, now_us);
        CHECK(hold_extend(&held, now_us, lease_ms, now_us));
    }
    return hold_gone_at_us(&held);
}

static void a_bound_is_kept_and_nearly_reached(void) {
    for (uint32_t max_hold_ms = 10000; max_hold_ms < 60000; max_hold_ms += 777) {
        begin_with((hold_rule){.lease_ms = LEASE_MS,
                               .renew_every_ms = EVERY_MS,
                               .max_hold_ms = max_hold_ms,
                               .io_timeout_ms = IO_MS});
        int renewals;
        int64_t held_ms = (renew_to_the_end(&renewals) - T0_US) / MS;
        CHECK(held_ms <= max_hold_ms);
        CHECK(held_ms >= (int64_t)max_hold_ms - EVERY_MS / 2 - LEASE_MS / 50);
        CHECK(renewals <= (int)(max_hold_ms / EVERY_MS) + 1);
    }
}

static void a_bound_shorter_than_the_lease_does_not_shorten_it(void) {
    begin_with((hold_rule){.lease_ms = LEASE_MS, .renew_every_ms = EVERY_MS, .max_hold_ms = 2000});
    CHECK_EQUAL(hold_renew_at_us(&held), INT64_MAX);
    CHECK_EQUAL(hold_gone_at_us(&held), valid_until_us(T0_US, LEASE_MS) - 50 * MS);
}

/* A lead is longer than these: it is part of the lease, not of the time between renewals. */
static void frequent_renewals_are_not_due_at_once(void) {
    begin_with((hold_rule){.lease_ms = LEASE_MS, .renew_every_ms = 3, .io_timeout_ms = IO_MS});
    CHECK_EQUAL(hold_renew_at_us(&held), T0_US + 3 * MS);
    CHECK(hold_extend(&held, T0_US, 50, T0_US + 1)); /* by hand, for less */
    CHECK_EQUAL(hold_gone_at_us(&held), valid_until_us(T0_US, 50) - 1 * MS);
    CHECK_EQUAL(hold_state(&held, T0_US + 1), DLOCK_SUSPECT);
}

static void less_that_is_certain_is_not_renewed_all_the_time(void) {
    begin_renewed();
    hold_note_doubt(&held, 1500);
    CHECK(hold_extend(&held, T0_US + 1000 * MS, LEASE_MS, T0_US + 1001 * MS));
    int64_t certain_us = hold_gone_at_us(&held) - held.asked_us;
    CHECK(certain_us < 1500 * MS);
    CHECK_EQUAL(hold_renew_at_us(&held), held.asked_us + certain_us / 2);
}

static void what_is_in_question_is_suspect_and_nothing_of_it_is_certain(void) {
    begin();
    int64_t gone_us = hold_gone_at_us(&held);
    hold_question(&held, true);
    CHECK_EQUAL(hold_state(&held, T0_US), DLOCK_SUSPECT);
    CHECK_EQUAL(hold_left_us(&held, T0_US), 0);
    CHECK_EQUAL(hold_suspect_at_us(&held), 0);
    CHECK_EQUAL(hold_gone_at_us(&held), gone_us);
    CHECK_EQUAL(hold_state(&held, gone_us), DLOCK_GONE);
    hold_question(&held, false);
    CHECK_EQUAL(hold_state(&held, T0_US), DLOCK_HELD);
    CHECK_EQUAL(hold_left_us(&held, gone_us - 3), 3);
    hold_question(&held, true);
    CHECK(hold_extend(&held, T0_US + 1, LEASE_MS, T0_US + 2));
    CHECK_EQUAL(hold_state(&held, T0_US + 2), DLOCK_HELD);
    hold_question(&held, true);
    CHECK(hold_expire(&held, hold_gone_at_us(&held)));
    hold_question(&held, false);
    CHECK_EQUAL(hold_state(&held, T0_US), DLOCK_GONE);
}

static void what_was_gone_while_it_was_doubted_is_not_restored(void) {
    begin();
    int64_t before_us = hold_doubt(&held, T0_US, 100), gone_us = hold_gone_at_us(&held);
    hold_restore(&held, before_us, gone_us);
    CHECK_EQUAL(hold_state(&held, gone_us), DLOCK_GONE);
}

static bool is_readable(int fd) {
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    return poll(&polled, 1, 0) == 1;
}

static void the_descriptor_is_readable_while_it_is_lost(void) {
    hold_init(&held, &(hold_rule){.lease_ms = LEASE_MS});
    int fd = hold_lost_fd(&held);
    CHECK(fd >= 0);
    CHECK_EQUAL(hold_lost_fd(&held), fd);
    CHECK(!is_readable(fd));
    hold_begin(&held, INT64_MAX / 4, LEASE_MS, true);
    CHECK(!is_readable(fd));
    hold_lose(&held, DLOCK_LOST);
    CHECK(is_readable(fd));
    hold_end(&held);
    CHECK(!is_readable(fd));
    hold_begin(&held, 1, LEASE_MS, true); /* long ago */
    CHECK(is_readable(fd));
    hold_free(&held);
}

static void who_asks_for_the_descriptor_is_told_before_the_end_from_then_on(void) {
    begin();
    int fd = hold_lost_fd(&held);
    CHECK_EQUAL(hold_gone_at_us(&held), valid_until_us(T0_US, LEASE_MS) - 50 * MS);
    hold_free(&held);
    CHECK(fd >= 0);
}

int main(void) {
    UNIT_RUN(before_and_after_it_is_free);
    UNIT_RUN(it_is_held_until_its_validity_ends);
    UNIT_RUN(who_is_to_be_told_is_told_before_the_end);
    UNIT_RUN(without_renewal_it_is_never_suspect);
    UNIT_RUN(a_renewal_is_due_after_its_time_and_overdue_after_an_io_timeout);
    UNIT_RUN(little_time_after_a_renewal_is_halved);
    UNIT_RUN(an_extension_counts_from_when_it_was_asked_for);
    UNIT_RUN(an_extension_that_is_answered_too_late_does_not_count);
    UNIT_RUN(what_is_lost_stays_lost);
    UNIT_RUN(what_is_given_back_cannot_be_lost);
    UNIT_RUN(it_expires_once_its_time_has_come);
    UNIT_RUN(while_a_shorter_extension_is_under_way_only_that_is_certain);
    UNIT_RUN(an_unanswered_extension_may_still_arrive);
    UNIT_RUN(a_bound_is_kept_and_nearly_reached);
    UNIT_RUN(a_bound_shorter_than_the_lease_does_not_shorten_it);
    UNIT_RUN(frequent_renewals_are_not_due_at_once);
    UNIT_RUN(less_that_is_certain_is_not_renewed_all_the_time);
    UNIT_RUN(what_is_in_question_is_suspect_and_nothing_of_it_is_certain);
    UNIT_RUN(what_was_gone_while_it_was_doubted_is_not_restored);
    UNIT_RUN(the_descriptor_is_readable_while_it_is_lost);
    UNIT_RUN(who_asks_for_the_descriptor_is_told_before_the_end_from_then_on);
    return unit_summary();
}
