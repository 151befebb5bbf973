/* SPDX-License-Identifier: BSD-3-Clause */
/* lease_test.c - how long a lock is certainly held, and when something is to be done about it. */
#include "fake_loop.h"

#include "deployment/life.c"
#include "lease/lease.h"
#include "unit.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { LEASE_MS = 10000, EVERY_MS = 3000, IO_MS = 200 };

static lease held;

static int64_t valid_until_us(int64_t asked_us, uint32_t lease_ms) {
    return validity_end_us(asked_us, lease_ms);
}

static void init(lease_rule rule) {
    static lease_links links;
    lease_init(&held, &rule);
    lease_link(&held, &links);
}

static void begin_with(lease_rule rule) {
    init(rule);
    lease_begin(&held, T0_US, rule.lease_ms, T0_US);
}

static void begin(void) {
    begin_with((lease_rule){.lease_ms = LEASE_MS, .io_timeout_ms = IO_MS});
}

static void begin_renewed(void) {
    begin_with(
        (lease_rule){.lease_ms = LEASE_MS, .renew_every_ms = EVERY_MS, .io_timeout_ms = IO_MS});
}

TEST(before_and_after_the_lock_is_free) {
    init((lease_rule){.lease_ms = LEASE_MS});
    CHECK_EQUAL(lease_state(&held, T0_US), DLOCK_STATE_FREE);
    CHECK_EQUAL(lease_left_us(&held, T0_US), 0);
    lease_begin(&held, T0_US, LEASE_MS, T0_US);
    lease_end(&held);
    CHECK_EQUAL(lease_state(&held, T0_US), DLOCK_STATE_FREE);
    CHECK_EQUAL(lease_left_us(&held, T0_US), 0);
}

TEST(a_lock_is_held_until_its_validity_ends) {
    begin();
    int64_t end_us = valid_until_us(T0_US, LEASE_MS);
    CHECK_EQUAL(lease_state(&held, T0_US), DLOCK_STATE_HELD);
    CHECK_EQUAL(lease_state(&held, end_us - 1), DLOCK_STATE_HELD);
    CHECK_EQUAL(lease_state(&held, end_us), DLOCK_STATE_LOST);
    CHECK_EQUAL(lease_left_us(&held, end_us - 5), 5);
    CHECK_EQUAL(lease_left_us(&held, end_us + 5), 0);
}

TEST(who_is_to_be_told_is_told_before_the_end) {
    init((lease_rule){.lease_ms = LEASE_MS});
    held.has_lead = true;
    lease_begin(&held, T0_US, LEASE_MS, T0_US);
    CHECK_EQUAL(lease_gone_at_us(&held), valid_until_us(T0_US, LEASE_MS) - 50 * MS);
    init((lease_rule){.lease_ms = 100});
    held.has_lead = true;
    lease_begin(&held, T0_US, 100, T0_US);
    CHECK_EQUAL(lease_gone_at_us(&held), valid_until_us(T0_US, 100) - 2 * MS);
}

TEST(without_renewal_a_lock_is_never_suspect) {
    begin();
    CHECK_EQUAL(lease_suspect_at_us(&held), lease_gone_at_us(&held));
    CHECK_EQUAL(lease_renew_at_us(&held), INT64_MAX);
    CHECK_EQUAL(lease_state(&held, lease_gone_at_us(&held) - 1), DLOCK_STATE_HELD);
}

TEST(a_renewal_is_due_after_its_time_and_overdue_after_an_io_timeout) {
    begin_renewed();
    CHECK_EQUAL(lease_renew_at_us(&held), T0_US + EVERY_MS * MS);
    CHECK_EQUAL(lease_suspect_at_us(&held), T0_US + (EVERY_MS + IO_MS) * MS);
    CHECK_EQUAL(lease_state(&held, lease_suspect_at_us(&held) - 1), DLOCK_STATE_HELD);
    CHECK_EQUAL(lease_state(&held, lease_suspect_at_us(&held)), DLOCK_STATE_SUSPECT);
    CHECK_EQUAL(lease_state(&held, lease_gone_at_us(&held) - 1), DLOCK_STATE_SUSPECT);
    CHECK_EQUAL(lease_state(&held, lease_gone_at_us(&held)), DLOCK_STATE_LOST);
}

TEST(little_time_after_a_renewal_is_halved) {
    begin_with((lease_rule){.lease_ms = 1000, .renew_every_ms = 900, .io_timeout_ms = IO_MS});
    int64_t due_us = lease_renew_at_us(&held), gone_us = lease_gone_at_us(&held);
    CHECK_EQUAL(due_us, T0_US + 900 * MS);
    CHECK_EQUAL(lease_suspect_at_us(&held), due_us + (gone_us - due_us) / 2);
}

TEST(an_extension_counts_from_when_it_was_asked_for) {
    begin_renewed();
    CHECK(lease_extend(&held, T0_US + 3000 * MS, LEASE_MS, T0_US + 3001 * MS));
    CHECK_EQUAL(lease_gone_at_us(&held), valid_until_us(T0_US + 3000 * MS, LEASE_MS) - 50 * MS);
    CHECK_EQUAL(lease_renew_at_us(&held), T0_US + 6000 * MS);
    CHECK_EQUAL(lease_state(&held, T0_US + 3300 * MS), DLOCK_STATE_HELD);
    CHECK_EQUAL(held.asked_us, T0_US + 3000 * MS);
}

TEST(a_shorter_extension_changes_nothing) {
    begin_renewed();
    int64_t gone_us = lease_gone_at_us(&held);
    held.why = DLOCK_UNREACHABLE;
    CHECK(lease_extend(&held, T0_US + 1000 * MS, 50, T0_US + 1001 * MS));
    CHECK_EQUAL(lease_gone_at_us(&held), gone_us);
    CHECK_EQUAL(held.lease_ms, LEASE_MS);
    CHECK_EQUAL(held.asked_us, T0_US);
    CHECK_EQUAL(held.why, DLOCK_OK);
}

TEST(a_lease_counts_from_now_at_the_latest_whatever_a_store_says) {
    int64_t now_us = T0_US + 1000 * MS;
    begin();
    lease_begin(&held, INT64_MAX, LEASE_MS, now_us);
    CHECK_EQUAL(lease_gone_at_us(&held), valid_until_us(now_us, LEASE_MS));
    CHECK(lease_extend(&held, INT64_MAX, 2 * LEASE_MS, now_us + 1));
    CHECK_EQUAL(lease_gone_at_us(&held), valid_until_us(now_us + 1, 2 * LEASE_MS));
}

TEST(a_longer_extension_puts_the_next_renewal_off) {
    begin_renewed();
    int64_t before_us = lease_gone_at_us(&held) - lease_renew_at_us(&held);
    CHECK(lease_extend(&held, T0_US + 1000 * MS, 60000, T0_US + 1001 * MS));
    int64_t due_us = lease_renew_at_us(&held), gone_us = lease_gone_at_us(&held);
    CHECK_EQUAL(gone_us - due_us, before_us);
    CHECK(lease_extend(&held, due_us, LEASE_MS, due_us));
    CHECK_EQUAL(lease_gone_at_us(&held), gone_us + EVERY_MS * MS);
}

TEST(an_extension_that_is_answered_too_late_does_not_count) {
    begin();
    int64_t gone_us = lease_gone_at_us(&held);
    CHECK(!lease_extend(&held, gone_us - 1, LEASE_MS, gone_us));
    CHECK_EQUAL(lease_state(&held, gone_us), DLOCK_STATE_LOST);
    CHECK(lease_extend(&held, gone_us - 2, LEASE_MS, gone_us - 1));
}

TEST(a_lost_lock_stays_lost) {
    begin();
    lease_lose(&held, DLOCK_LOST);
    CHECK_EQUAL(lease_state(&held, T0_US), DLOCK_STATE_LOST);
    CHECK(!lease_extend(&held, T0_US + 1, LEASE_MS, T0_US + 2));
    lease_question(&held, true);
    lease_question(&held, false);
    CHECK_EQUAL(lease_state(&held, T0_US), DLOCK_STATE_LOST);
    CHECK_EQUAL(lease_gone_at_us(&held), LEASE_OVER);
    CHECK_EQUAL(lease_renew_at_us(&held), INT64_MAX);
    CHECK_EQUAL(held.why, DLOCK_LOST);
}

TEST(a_lock_that_is_given_back_cannot_be_lost) {
    begin();
    lease_end(&held);
    lease_lose(&held, DLOCK_LOST);
    CHECK_EQUAL(lease_state(&held, T0_US), DLOCK_STATE_FREE);
}

/* Renews whenever that is due; the result is when the lock is gone in the end. */
static int64_t renew_to_the_end(int *renewals) {
    for (*renewals = 0; lease_renew_at_us(&held) != INT64_MAX && *renewals < 1000; ++*renewals) {
        int64_t now_us = lease_renew_at_us(&held);
        uint32_t lease_ms = lease_renew_for_ms(&held, now_us);
        CHECK(lease_extend(&held, now_us, lease_ms, now_us));
    }
    return lease_gone_at_us(&held);
}

TEST(a_bound_is_kept_and_nearly_reached) {
    for (uint32_t max_hold_ms = 10000; max_hold_ms < 60000; max_hold_ms += 777) {
        begin_with((lease_rule){.lease_ms = LEASE_MS,
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

TEST(a_bound_shorter_than_the_lease_does_not_shorten_the_lease) {
    begin_with((lease_rule){.lease_ms = LEASE_MS, .renew_every_ms = EVERY_MS, .max_hold_ms = 2000});
    CHECK_EQUAL(lease_renew_at_us(&held), INT64_MAX);
    CHECK_EQUAL(lease_gone_at_us(&held), valid_until_us(T0_US, LEASE_MS) - 50 * MS);
}

/* A lead is longer than these: the lead is part of the lease, not of the time between renewals. */
TEST(frequent_renewals_are_not_due_at_once) {
    begin_with((lease_rule){.lease_ms = LEASE_MS, .renew_every_ms = 3, .io_timeout_ms = IO_MS});
    CHECK_EQUAL(lease_renew_at_us(&held), T0_US + 3 * MS);
}

TEST(a_grant_shorter_than_the_rule_is_renewed_halfway) {
    begin_renewed();
    lease_begin(&held, T0_US, 1500, T0_US);
    int64_t certain_us = lease_gone_at_us(&held) - T0_US;
    CHECK(certain_us < 1500 * MS);
    CHECK_EQUAL(lease_renew_at_us(&held), T0_US + certain_us / 2);
    CHECK_EQUAL(lease_suspect_at_us(&held), lease_renew_at_us(&held) + IO_MS * MS);
    int64_t renewed_us = T0_US + 700 * MS;
    CHECK(lease_extend(&held, renewed_us, 1500, renewed_us + MS));
    CHECK_EQUAL(lease_state(&held, renewed_us + MS), DLOCK_STATE_HELD);
    CHECK_EQUAL(lease_suspect_at_us(&held), lease_renew_at_us(&held) + IO_MS * MS);
}

TEST(a_lock_that_is_handed_on_late_is_suspect_only_if_its_renewal_is) {
    int64_t now_us = T0_US + 6000 * MS; /* a renewal is due since long */
    begin_renewed();
    lease_begin(&held, T0_US, LEASE_MS, now_us);
    CHECK(lease_renew_at_us(&held) < now_us);
    CHECK_EQUAL(lease_suspect_at_us(&held), now_us + IO_MS * MS);
}

TEST(a_lock_in_question_is_suspect_and_no_time_is_certain) {
    begin();
    int64_t gone_us = lease_gone_at_us(&held);
    lease_question(&held, true);
    CHECK_EQUAL(lease_state(&held, T0_US), DLOCK_STATE_SUSPECT);
    CHECK_EQUAL(lease_left_us(&held, T0_US), 0);
    CHECK_EQUAL(lease_suspect_at_us(&held), 0);
    CHECK_EQUAL(lease_gone_at_us(&held), gone_us);
    CHECK_EQUAL(lease_state(&held, gone_us), DLOCK_STATE_LOST);
    lease_question(&held, false);
    CHECK_EQUAL(lease_state(&held, T0_US), DLOCK_STATE_HELD);
    CHECK_EQUAL(lease_left_us(&held, gone_us - 3), 3);
    lease_question(&held, true);
    lease_lose(&held, DLOCK_LOST);
    lease_question(&held, false);
    CHECK_EQUAL(lease_state(&held, T0_US), DLOCK_STATE_LOST);
}

TEST(an_extension_does_not_end_a_question) {
    begin();
    int64_t gone_us = lease_gone_at_us(&held);
    lease_question(&held, true);
    CHECK(lease_extend(&held, T0_US + 1000 * MS, LEASE_MS, T0_US + 1001 * MS));
    CHECK_EQUAL(lease_state(&held, T0_US + 1001 * MS), DLOCK_STATE_SUSPECT);
    CHECK_EQUAL(lease_gone_at_us(&held), gone_us + 1000 * MS);
    lease_question(&held, false);
    CHECK_EQUAL(lease_state(&held, T0_US + 1001 * MS), DLOCK_STATE_HELD);
}

static bool is_readable(int fd) {
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    return poll(&polled, 1, 0) == 1;
}

/* -- sessions */

enum { SESSION_MS = 9000, LEAD_MS = 50 };

static deployment fake_deployment = {
    .loop = &fake_loop, .io_timeout_ms = IO_MS, .session_ms = SESSION_MS};
static session_life *life;

static int64_t session_end_us(int64_t sent_us) {
    return valid_until_us(sent_us, SESSION_MS) - LEAD_MS * MS;
}

static void begin_life(void) {
    fake_loop_reset();
    fake_deployment.lives = NULL;
    atomic_store(&fake_deployment.renewed, 0);
    life = life_begin(&fake_deployment, T0_US);
}

static void begin_endless(void) {
    begin_life();
    begin_with((lease_rule){
        .lease_ms = SESSION_MS, .renew_every_ms = SESSION_MS / 3, .io_timeout_ms = IO_MS});
    lease_follow(&held, life, true, T0_US);
}

static bool beat_at(int64_t now_us) {
    fake_loop.now_us = now_us;
    return life_renew(life, now_us);
}

static void end_life(void) {
    lease_end(&held);
    lease_free(&held);
    life_free(life);
    CHECK(heap_first(&fake_loop.timers) == NULL);
    lives_free(fake_deployment.lives);
}

TEST(a_lock_without_a_lease_of_its_own_lasts_as_long_as_the_session) {
    begin_endless();
    CHECK_EQUAL(lease_gone_at_us(&held), session_end_us(T0_US));
    CHECK_EQUAL(lease_renew_at_us(&held), INT64_MAX); /* the session is renewed */
    int64_t sent_us = T0_US + 3000 * MS;
    CHECK(beat_at(sent_us));
    CHECK_EQUAL(lease_gone_at_us(&held), session_end_us(sent_us));
    CHECK_EQUAL(lease_asked_us(&held), sent_us);
    CHECK_EQUAL(lease_state(&held, sent_us + 10 * MS), DLOCK_STATE_HELD);
    CHECK_EQUAL(atomic_load(&fake_deployment.renewed), 1);
    end_life();
    CHECK_EQUAL(held.asked_us, sent_us); /* for the release */
}

/* A reply comes at the latest a third of the timeout after the heartbeat was sent, and the next one
 * after another third. */
TEST(a_lock_without_a_lease_of_its_own_is_suspect_when_a_heartbeat_is_overdue) {
    begin_endless();
    int64_t overdue_us = T0_US + (SESSION_MS * 2 / 3 + IO_MS) * MS;
    CHECK_EQUAL(lease_suspect_at_us(&held), overdue_us);
    CHECK_EQUAL(lease_own_suspect_at_us(&held), INT64_MAX);
    CHECK_EQUAL(lease_state(&held, overdue_us - 1), DLOCK_STATE_HELD);
    CHECK_EQUAL(lease_state(&held, overdue_us), DLOCK_STATE_SUSPECT);
    CHECK_EQUAL(lease_state(&held, session_end_us(T0_US)), DLOCK_STATE_LOST);
    CHECK_EQUAL(lease_why(&held, DLOCK_STATE_SUSPECT), DLOCK_IN_DOUBT);
    end_life();
}

TEST(a_heartbeat_that_is_answered_late_leaves_time_for_the_next_one) {
    begin_endless();
    fake_loop.now_us = T0_US + 8000 * MS;
    CHECK(life_renew(life, T0_US + 1000 * MS));
    CHECK_EQUAL(lease_suspect_at_us(&held), fake_loop.now_us + IO_MS * MS);
    end_life();
}

TEST(a_lock_with_a_lease_of_its_own_ends_with_the_earlier_of_both) {
    begin_life();
    begin_renewed();
    int64_t own_end_us = lease_gone_at_us(&held);
    lease_follow(&held, life, false, T0_US);
    CHECK_EQUAL(lease_gone_at_us(&held), session_end_us(T0_US));
    int64_t sent_us = T0_US + 3000 * MS;
    CHECK(beat_at(sent_us));
    CHECK_EQUAL(lease_gone_at_us(&held), own_end_us);
    CHECK(lease_extend(&held, sent_us, LEASE_MS, sent_us));
    CHECK_EQUAL(lease_gone_at_us(&held), session_end_us(sent_us));
    CHECK(lease_renew_at_us(&held) != INT64_MAX);
    end_life();
}

TEST(a_heartbeat_that_is_answered_after_the_end_does_not_count) {
    begin_endless();
    int64_t gone_us = lease_gone_at_us(&held);
    CHECK(!beat_at(gone_us));
    CHECK_EQUAL(lease_state(&held, gone_us), DLOCK_STATE_LOST);
    session_life *next = life_begin(&fake_deployment, gone_us);
    CHECK(next != life);
    lease_follow(&held, next, true, gone_us); /* too late */
    CHECK_EQUAL(lease_state(&held, gone_us), DLOCK_STATE_LOST);
    lease_end(&held);
    lease_follow(&held, next, true, gone_us);
    CHECK_EQUAL(lease_state(&held, gone_us), DLOCK_STATE_FREE);
    life_free(next);
    end_life();
}

TEST(a_heartbeat_does_not_end_a_question) {
    begin_endless();
    lease_question(&held, true);
    CHECK(beat_at(T0_US + 100 * MS));
    CHECK_EQUAL(lease_state(&held, T0_US + 100 * MS), DLOCK_STATE_SUSPECT);
    lease_question(&held, false);
    CHECK_EQUAL(lease_state(&held, T0_US + 100 * MS), DLOCK_STATE_HELD);
    CHECK_EQUAL(lease_gone_at_us(&held), session_end_us(T0_US + 100 * MS));
    end_life();
}

TEST(the_heartbeats_of_a_session_that_may_not_know_the_lock_do_not_count) {
    begin_endless();
    CHECK(beat_at(T0_US + 100 * MS));
    lease_unfollow(&held, T0_US + 100 * MS);
    CHECK(beat_at(T0_US + 3000 * MS));
    CHECK_EQUAL(lease_gone_at_us(&held), session_end_us(T0_US + 100 * MS));
    CHECK_EQUAL(lease_asked_us(&held), T0_US + 100 * MS);
    CHECK(lease_own_suspect_at_us(&held) < lease_gone_at_us(&held)); /* the life tells no more */
    CHECK_EQUAL(lease_state(&held, fake_loop.now_us), DLOCK_STATE_HELD);
    CHECK_EQUAL(atomic_load(&fake_deployment.renewed), 1);
    lease_follow(&held, life, true, fake_loop.now_us);
    CHECK_EQUAL(lease_gone_at_us(&held), session_end_us(T0_US + 3000 * MS));
    end_life();
}

TEST(an_extension_of_a_lock_without_a_lease_of_its_own_changes_nothing) {
    begin_endless();
    int64_t gone_us = lease_gone_at_us(&held);
    CHECK(lease_extend(&held, T0_US + 100 * MS, 2 * LEASE_MS, T0_US + 100 * MS));
    CHECK_EQUAL(lease_gone_at_us(&held), gone_us);
    end_life();
}

TEST(the_next_acquisition_has_no_session) {
    begin_endless();
    lease_end(&held);
    lease_begin(&held, T0_US, LEASE_MS, T0_US);
    CHECK_EQUAL(lease_gone_at_us(&held), valid_until_us(T0_US, LEASE_MS) - LEAD_MS * MS);
    end_life();
}

TEST(a_life_is_used_again_once_nobody_reads_it) {
    begin_endless();
    session_life *first = life;
    life = life_begin(&fake_deployment, T0_US); /* as after a restart of the server */
    life_free(first);
    CHECK(life != first); /* the lock still reads it */
    CHECK_EQUAL(lease_gone_at_us(&held), session_end_us(T0_US));
    lease_follow(&held, life, true, T0_US);
    session_life *third = life_begin(&fake_deployment, T0_US);
    CHECK(third == first);
    life_free(third);
    end_life();
}

/* In the time of the kernel, which makes the descriptor readable. */
TEST(the_descriptor_of_a_tied_lock_follows_the_heartbeats) {
    int64_t now_us = clock_now_us(clock_system());
    begin_life();
    begin_with((lease_rule){.lease_ms = LEASE_MS, .io_timeout_ms = IO_MS});
    lease_begin(&held, now_us, LEASE_MS, now_us);
    fake_loop.now_us = now_us;
    life_free(life);
    life = life_begin(&fake_deployment, now_us);
    lease_follow(&held, life, false, now_us);
    int fd = lease_lost_fd(&held);
    struct itimerspec armed;
    for (int i = 0; i < 3; i++) {
        int64_t sent_us = now_us + i * 100 * MS;
        if (i > 0) CHECK(beat_at(sent_us));
        CHECK(timerfd_gettime(fd, &armed) == 0);
        int64_t left_us = armed.it_value.tv_sec * 1000000 + armed.it_value.tv_nsec / 1000;
        int64_t end_us = clock_now_us(clock_system()) + left_us;
        int64_t late_us = end_us - lease_gone_at_us(&held);
        CHECK(late_us > -1 * MS && late_us < 50 * MS); /* the test itself takes time */
        CHECK_EQUAL(lease_gone_at_us(&held), session_end_us(sent_us));
    }
    end_life();
}

TEST(the_descriptor_is_readable_while_the_lock_is_lost) {
    init((lease_rule){.lease_ms = LEASE_MS});
    int fd = lease_lost_fd(&held);
    CHECK(fd >= 0);
    CHECK_EQUAL(lease_lost_fd(&held), fd);
    CHECK(!is_readable(fd));
    lease_begin(&held, INT64_MAX / 4, LEASE_MS, INT64_MAX / 4);
    CHECK(!is_readable(fd));
    lease_question(&held, true);
    CHECK(!is_readable(fd));
    lease_lose(&held, DLOCK_LOST);
    CHECK(is_readable(fd));
    lease_end(&held);
    CHECK(!is_readable(fd));
    lease_begin(&held, 1, LEASE_MS, 1); /* long ago */
    CHECK(is_readable(fd));
    lease_free(&held);
}

TEST(a_descriptor_that_is_readable_stays_so_when_the_loss_is_noticed) {
    begin_renewed();
    int fd = lease_lost_fd(&held), poller = epoll_create1(0);
    struct epoll_event edge = {.events = EPOLLIN | EPOLLET};
    CHECK_EQUAL(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &edge), 0);
    lease_end(&held);
    lease_begin(&held, 1, LEASE_MS, 1); /* long ago */
    CHECK_EQUAL(epoll_wait(poller, &edge, 1, 1000), 1);
    lease_lose(&held, DLOCK_LOST);
    CHECK_EQUAL(epoll_wait(poller, &edge, 1, 0), 0); /* the timer was not set anew */
    CHECK(is_readable(fd));
    close(poller);
    lease_free(&held);
}

TEST(who_asks_for_the_descriptor_is_told_before_the_end_from_then_on) {
    begin();
    int fd = lease_lost_fd(&held);
    CHECK_EQUAL(lease_gone_at_us(&held), valid_until_us(T0_US, LEASE_MS) - 50 * MS);
    lease_free(&held);
    CHECK(fd >= 0);
}

TEST(a_suspect_or_lost_lock_has_a_reason) {
    begin_renewed();
    CHECK_EQUAL(lease_why(&held, DLOCK_STATE_SUSPECT), DLOCK_IN_DOUBT); /* no reply yet */
    CHECK_EQUAL(lease_why(&held, DLOCK_STATE_LOST), DLOCK_LOST);
    lease_question(&held, true);
    CHECK_EQUAL(lease_why(&held, DLOCK_STATE_SUSPECT),
                DLOCK_UNREACHABLE); /* the session's connection */
    begin_with((lease_rule){
        .lease_ms = LEASE_MS, .renew_every_ms = EVERY_MS, .max_hold_ms = LEASE_MS + 1});
    CHECK_EQUAL(lease_why(&held, DLOCK_STATE_SUSPECT), DLOCK_TIMEOUT);
    atomic_store(&held.why, DLOCK_REFUSED);
    CHECK_EQUAL(lease_why(&held, DLOCK_STATE_SUSPECT), DLOCK_REFUSED);
}

int main(void) {
    return unit_main(NULL, NULL);
}
