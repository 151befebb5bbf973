/* SPDX-License-Identifier: BSD-3-Clause */
/* routed_test.c - attempts that one server decides: which connection they take, and their
 * results. */
#include "routed_world.h"

static void a_free_lock_is_granted_over_the_command_connection(void) {
    begin_stage();
    start_acquire(0);
    CHECK_HEARD(0, ACQUIRE);
    pass_ms(3);
    say(0, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL((int64_t)stage.attempt.fence, 7);
    CHECK_EQUAL(stage.attempt.asked_us, START_US);
    CHECK_TEXT(stage.attempt.cause, "");
    CHECK_EQUAL(the_peer.link_count, 1);
    end_stage();
}

static void a_lock_that_may_be_waited_for_is_first_tried_without_a_wait(void) {
    begin_stage();
    start_acquire(WAIT_MS);
    CHECK_HEARD(0, ACQUIRE);
    say(0, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(the_peer.link_count, 1);
    end_stage();
}

static void a_busy_lock_is_waited_for_on_an_own_connection(void) {
    begin_stage();
    start_acquire(WAIT_MS);
    pass_ms(900);
    say(0, "$-1\r\n");
    CHECK_EQUAL(stage.done_count, 0);
    CHECK_HEARD(0, ACQUIRE);
    CHECK_HEARD(1, ACQUIRE " WAIT 4100");
    pass_ms(500);
    say(1, ":8\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL((int64_t)stage.attempt.fence, 8);
    CHECK_EQUAL(stage.attempt.asked_us, START_US + 900000);
    end_stage();
}

static void a_busy_lock_that_is_not_waited_for_is_busy(void) {
    begin_stage();
    start_acquire(0);
    say(0, "$-1\r\n");
    CHECK_DONE(DLOCK_BUSY, false);
    CHECK(!stage.attempt.may_hold);
    CHECK_EQUAL(the_peer.link_count, 1);
    end_stage();
}

static void a_lock_that_was_busy_lately_is_waited_for_at_once(void) {
    begin_stage();
    start_acquire(0);
    say(0, "$-1\r\n");
    CHECK_HEARD(0, ACQUIRE);
    pass_ms(900);
    start_acquire(WAIT_MS);
    CHECK_HEARD(0, "");
    CHECK_HEARD(1, ACQUIRE " WAIT 5000");
    pass_ms(200); /* granted after a wait: still busy */
    say(1, ":8\r\n");
    CHECK_DONE(DLOCK_OK, false);
    pass_ms(900);
    start_acquire(WAIT_MS);
    CHECK_HEARD(1, ACQUIRE " WAIT 5000"); /* the same connection: it was kept */
    say(1, ":9\r\n");
    pass_ms(1000); /* and granted at once: busy no more */
    start_acquire(WAIT_MS);
    CHECK_HEARD(0, ACQUIRE);
    say(0, ":9\r\n");
    CHECK_DONE(DLOCK_OK, false);
    end_stage();
}

static void the_end_of_the_wait_is_busy(void) {
    begin_stage();
    start_acquire(WAIT_MS);
    say(0, "$-1\r\n");
    pass_ms(WAIT_MS);
    say(1, "$-1\r\n");
    CHECK_DONE(DLOCK_BUSY, false);
    CHECK(!stage.attempt.may_hold);
    end_stage();
}

static void a_wait_for_ever_is_sent_as_one_day(void) {
    begin_stage();
    stage.attempt.operation = DLOCK_ACQUIRING;
    stage.attempt.wait_until_us = stage.attempt.limit_us = DEADLINE_NEVER;
    deployment_start(stage.deployment, &stage.attempt);
    settle();
    say(0, "$-1\r\n");
    CHECK_HEARD(1, ACQUIRE " WAIT 86400000");
    say(1, ":8\r\n");
    CHECK_DONE(DLOCK_OK, false);
    end_stage();
}

static void a_release_is_told_to_be_sent_before_its_reply(void) {
    begin_stage();
    start(DLOCK_RELEASING, 0, IO_MS);
    CHECK_EQUAL(stage.sent_count, 1);
    CHECK_HEARD(0, RELEASE);
    say(0, ":1\r\n");
    CHECK_DONE(DLOCK_OK, false);
    start(DLOCK_RELEASING, 0, IO_MS);
    say(0, ":0\r\n");
    CHECK_DONE(DLOCK_LOST, false);
    CHECK_EQUAL(stage.sent_count, 2);
    end_stage();
}

static void an_extension_counts_from_when_it_was_sent(void) {
    begin_stage();
    start(DLOCK_EXTENDING, 0, IO_MS);
    CHECK_HEARD(0, EXTEND);
    pass_ms(5);
    say(0, ":1\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(stage.attempt.asked_us, START_US);
    start(DLOCK_EXTENDING, 0, IO_MS);
    say(0, ":0\r\n");
    CHECK_DONE(DLOCK_LOST, false);
    end_stage();
}

static void an_error_comes_with_the_name_of_the_server(void) {
    begin_stage();
    char expected[CAUSE_SIZE];
    start_acquire(0);
    say(0, "-NOPERM no\r\n");
    CHECK_DONE(DLOCK_REFUSED, false);
    snprintf(expected, sizeof(expected), "%s: NOPERM no", the_peer.path);
    CHECK_TEXT(stage.attempt.cause, expected);
    CHECK(!stage.attempt.may_hold);
    end_stage();
}

/* -- replicas */

static void replicas_are_waited_for_on_an_own_connection(void) {
    begin_stage();
    stage.attempt.terms.min_replicas = 2;
    stage.attempt.terms.replica_timeout_ms = 100;
    start_acquire(0);
    CHECK_HEARD(0, ACQUIRE "; WAIT 2 100");
    say(0, ":7\r\n:2\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL((int64_t)stage.attempt.fence, 7);
    start(DLOCK_EXTENDING, 0, IO_MS);
    CHECK_HEARD(0, EXTEND "; WAIT 2 100");
    say(0, ":1\r\n:1\r\n");
    CHECK_DONE(DLOCK_NO_REPLICAS, false);
    CHECK_EQUAL((int64_t)stage.deployment->withdrawals.count, 0);
    start(DLOCK_RELEASING, 0, IO_MS);
    CHECK_HEARD(1, RELEASE);
    say(1, ":1\r\n");
    CHECK_DONE(DLOCK_OK, false);
    end_stage();
}

static void a_grant_with_too_few_replicas_is_undone(void) {
    begin_stage();
    stage.attempt.terms.min_replicas = 2;
    stage.attempt.terms.replica_timeout_ms = 100;
    start_acquire(0);
    CHECK_HEARD(0, ACQUIRE "; WAIT 2 100");
    say(0, ":7\r\n:1\r\n");
    CHECK_HEARD(0, RELEASE);
    CHECK_EQUAL(stage.done_count, 0);
    say(0, ":1\r\n");
    CHECK_DONE(DLOCK_NO_REPLICAS, false);
    CHECK(!stage.attempt.may_hold);
    CHECK(stage.router.is_doubted);
    CHECK_EQUAL((int64_t)stage.deployment->withdrawals.count, 0);
    end_stage();
}

/* -- sessions */

static void a_session_keeps_its_connection_until_it_is_released(void) {
    begin_stage();
    stage.attempt.terms.session = &stage.session;
    start_acquire(WAIT_MS);
    CHECK_HEARD(0, ACQUIRE " WAIT 5000 SESSION");
    say(0, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK(stage.session.own != NULL);
    start(DLOCK_EXTENDING, 0, IO_MS);
    CHECK_HEARD(1, EXTEND);
    say(1, ":1\r\n");
    start(DLOCK_RELEASING, 0, IO_MS);
    CHECK_HEARD(1, RELEASE);
    CHECK(stage.session.own != NULL);
    say(1, ":1\r\n");
    CHECK(stage.session.own == NULL);
    CHECK(link_at(0)->is_open);
    end_stage();
}

static void a_session_whose_release_is_not_answered_is_closed(void) {
    begin_stage();
    stage.attempt.terms.session = &stage.session;
    start_acquire(0);
    CHECK_HEARD(0, ACQUIRE " SESSION");
    say(0, ":7\r\n");
    start(DLOCK_RELEASING, 0, IO_MS);
    pass_ms(IO_MS);
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    settle();
    CHECK(!link_at(0)->is_open);
    CHECK(stage.session.own == NULL);
    end_stage();
}

static void a_session_in_doubt_is_withdrawn_and_gets_another_token(void) {
    begin_stage();
    stage.attempt.terms.session = &stage.session;
    start_acquire(0);
    link_end(link_at(0));
    settle();
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    CHECK(strcmp(stage.attempt.token, TOKEN) != 0);
    CHECK(!stage.attempt.may_hold);
    CHECK_HEARD(1, RELEASE);
    end_stage();
}

static void a_session_that_is_moved_is_never_undone(void) {
    begin_stage();
    stage.attempt.terms.session = &stage.session;
    stage.attempt.is_background = true;
    start_acquire(0);
    pass_ms(IO_MS);
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    CHECK(stage.attempt.may_hold);
    CHECK_TEXT(stage.attempt.token, TOKEN);
    settle();
    CHECK_HEARD(0, ACQUIRE " SESSION");
    CHECK_EQUAL(the_peer.link_count, 1);
    CHECK(!link_at(0)->is_open);
    start_acquire(0);
    deployment_abandon(stage.deployment, &stage.attempt);
    settle();
    CHECK_HEARD(1, ACQUIRE " SESSION");
    CHECK_EQUAL(the_peer.link_count, 2);
    end_stage();
}

/* The server that ended one connection may be about to end the others. */
static void a_session_is_moved_over_a_new_connection(void) {
    begin_stage();
    stage.attempt.terms.min_replicas = 1;
    stage.attempt.terms.replica_timeout_ms = 100;
    start_acquire(0);
    CHECK_HEARD(0, ACQUIRE "; WAIT 1 100");
    say(0, ":7\r\n:1\r\n");
    CHECK(link_at(0)->is_open); /* kept for the next user */
    stage.attempt.terms.min_replicas = 0;
    stage.attempt.terms.session = &stage.session;
    stage.attempt.is_background = true;
    start_acquire(0);
    CHECK_HEARD(0, "");
    CHECK_HEARD(1, ACQUIRE " SESSION");
    say(1, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
    end_stage();
}

int main(void) {
    UNIT_RUN(a_free_lock_is_granted_over_the_command_connection);
    UNIT_RUN(a_lock_that_may_be_waited_for_is_first_tried_without_a_wait);
    UNIT_RUN(a_busy_lock_is_waited_for_on_an_own_connection);
    UNIT_RUN(a_busy_lock_that_is_not_waited_for_is_busy);
    UNIT_RUN(a_lock_that_was_busy_lately_is_waited_for_at_once);
    UNIT_RUN(the_end_of_the_wait_is_busy);
    UNIT_RUN(a_wait_for_ever_is_sent_as_one_day);
    UNIT_RUN(a_release_is_told_to_be_sent_before_its_reply);
    UNIT_RUN(an_extension_counts_from_when_it_was_sent);
    UNIT_RUN(an_error_comes_with_the_name_of_the_server);
    UNIT_RUN(replicas_are_waited_for_on_an_own_connection);
    UNIT_RUN(a_grant_with_too_few_replicas_is_undone);
    UNIT_RUN(a_session_keeps_its_connection_until_it_is_released);
    UNIT_RUN(a_session_whose_release_is_not_answered_is_closed);
    UNIT_RUN(a_session_in_doubt_is_withdrawn_and_gets_another_token);
    UNIT_RUN(a_session_that_is_moved_is_never_undone);
    UNIT_RUN(a_session_is_moved_over_a_new_connection);
    return unit_summary();
}
