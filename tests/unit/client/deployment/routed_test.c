/* SPDX-License-Identifier: BSD-3-Clause */
/* routed_test.c - attempts that one server decides: which connection they take, and their
 * results. */
#include "routed_world.h"

TEST(a_free_lock_is_granted_over_the_command_connection) {
    start_acquire(0);
    CHECK_HEARD(0, ACQUIRE);
    pass_ms(3);
    say(0, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(stage.attempt.fence, 7);
    CHECK_EQUAL(stage.attempt.asked_us, START_US);
    CHECK_TEXT(stage.attempt.cause, "");
    CHECK_EQUAL(the_peer.link_count, 1);
}

TEST(a_lock_that_may_be_waited_for_is_first_tried_without_a_wait) {
    start_acquire(WAIT_MS);
    CHECK_HEARD(0, ACQUIRE);
    say(0, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(the_peer.link_count, 1);
}

/* Link 0: the command connection. Link 1: the session. */
TEST(a_busy_lock_is_waited_for_in_its_queue_by_the_session) {
    start_acquire(WAIT_MS);
    pass_ms(900);
    say(0, "$-1\r\n");
    CHECK_EQUAL(stage.done_count, 0);
    CHECK_HEARD(0, ACQUIRE);
    open_session(1);
    CHECK_HEARD(0, ACQUIRE " WAIT 4100 VIA ID");
    say(0, "+QUEUED\r\n");
    pass_ms(500);
    CHECK_EQUAL(stage.done_count, 0);
    say(1, EVENTS("1") GRANTED("1", "8", "0"));
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(stage.attempt.fence, 8);
    CHECK_EQUAL(stage.attempt.asked_us, START_US + 900000);
    CHECK_HEARD(1, SESSION " ACK 1");
    CHECK_HEARD(0, "");
}

TEST(a_grant_that_is_older_than_the_call_that_tells_it_counts_from_before_the_grant) {
    wait_in_queue(WAIT_MS);
    pass_ms(500);
    say(1, EVENTS("1") GRANTED("1", "8", "70"));
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(stage.attempt.asked_us, START_US - 70000);
}

TEST(an_event_may_overtake_the_reply_that_the_token_waits) {
    start_acquire(WAIT_MS);
    say(0, "$-1\r\n");
    open_session(1);
    say(1, EVENTS("1") GRANTED("1", "8", "0"));
    CHECK_DONE(DLOCK_OK, false);
    say(0, "+QUEUED\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(stage.attempt.fence, 8);
}

TEST(a_lock_that_became_free_is_granted_without_a_place_in_the_queue) {
    start_acquire(WAIT_MS);
    say(0, "$-1\r\n");
    open_session(1);
    say(0, ":9\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(stage.attempt.fence, 9);
}

TEST(a_busy_lock_that_is_not_waited_for_is_busy) {
    start_acquire(0);
    say(0, "$-1\r\n");
    CHECK_DONE(DLOCK_BUSY, false);
    CHECK_EQUAL(stage.attempt.fate, TOKEN_UNHELD);
    CHECK_EQUAL(the_peer.link_count, 1);
}

TEST(a_lock_that_was_busy_lately_is_waited_for_at_once) {
    start_acquire(0);
    say(0, "$-1\r\n");
    CHECK_HEARD(0, ACQUIRE);
    pass_ms(900);
    start_acquire(WAIT_MS);
    CHECK_HEARD(0, "");
    open_session(1);
    CHECK_HEARD(0, ACQUIRE " WAIT 5000 VIA ID");
    say(0, "+QUEUED\r\n");
    pass_ms(200); /* granted after a wait: still busy */
    say(1, EVENTS("1") GRANTED("1", "8", "0"));
    CHECK_DONE(DLOCK_OK, false);
    pass_ms(900);
    start_acquire(WAIT_MS);
    CHECK_HEARD(0, ACQUIRE " WAIT 5000 VIA ID"); /* the session is open */
    say(0, ":9\r\n");
    pass_ms(1000); /* and granted at once: busy no more */
    start_acquire(WAIT_MS);
    CHECK_HEARD(0, ACQUIRE);
    say(0, ":9\r\n");
    CHECK_DONE(DLOCK_OK, false);
}

TEST(the_end_of_the_wait_is_busy) {
    wait_in_queue(SESSION_MS / 3);
    pass_ms(SESSION_MS / 3);
    say(1, EVENTS("1") ENDED("1", "timeout"));
    CHECK_DONE(DLOCK_BUSY, false);
    CHECK_EQUAL(stage.attempt.fate, TOKEN_UNHELD);
}

TEST(a_wait_that_ends_with_an_error_is_refused) {
    wait_in_queue(WAIT_MS);
    say(1, EVENTS("1") ENDED("1", "NOPERM no"));
    CHECK_DONE(DLOCK_REFUSED, false);
    CHECK_EQUAL(stage.attempt.fate, TOKEN_UNHELD);
}

TEST(a_wait_for_ever_is_sent_as_one_day) {
    stage.attempt.operation = DLOCK_ACQUIRING;
    stage.attempt.wait_until_us = stage.attempt.limit_us = DEADLINE_NEVER;
    deployment_start(stage.deployment, &stage.attempt);
    settle();
    CHECK_HEARD(0, ACQUIRE);
    say(0, "$-1\r\n");
    open_session(1);
    CHECK_HEARD(0, ACQUIRE " WAIT 86400000 VIA ID");
    say(0, ":8\r\n");
    CHECK_DONE(DLOCK_OK, false);
}

TEST(a_release_is_told_to_be_sent_before_its_reply) {
    start(DLOCK_RELEASING, 0, IO_MS);
    CHECK_EQUAL(stage.sent_count, 1);
    CHECK_HEARD(0, RELEASE);
    say(0, ":1\r\n");
    CHECK_DONE(DLOCK_OK, false);
    start(DLOCK_RELEASING, 0, IO_MS);
    say(0, ":0\r\n");
    CHECK_DONE(DLOCK_LOST, false);
    CHECK_EQUAL(stage.sent_count, 2);
}

TEST(an_extension_counts_from_when_it_was_sent) {
    start(DLOCK_EXTENDING, 0, IO_MS);
    CHECK_HEARD(0, EXTEND);
    pass_ms(5);
    say(0, ":1\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(stage.attempt.asked_us, START_US);
    start(DLOCK_EXTENDING, 0, IO_MS);
    say(0, ":0\r\n");
    CHECK_DONE(DLOCK_LOST, false);
}

TEST(an_error_comes_with_the_name_of_the_server) {
    start_acquire(0);
    say(0, "-NOPERM no\r\n");
    CHECK_DONE(DLOCK_REFUSED, false);
    CHECK_CAUSE("NOPERM no");
    CHECK_EQUAL(stage.attempt.fate, TOKEN_UNHELD);
}

/* -- replicas. Link 0: the command connection. Link 1: EXTEND and WAIT */

TEST(replicas_are_waited_for_on_another_connection) {
    need_replicas(2);
    start_acquire(0);
    CHECK_HEARD(0, ACQUIRE);
    pass_ms(3);
    say(0, ":7\r\n");
    CHECK_HEARD(1, EXTEND "; WAIT 2 100");
    CHECK_EQUAL(stage.done_count, 0);
    pass_ms(3);
    say(1, ":1\r\n:2\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(stage.attempt.fence, 7);
    CHECK_EQUAL(stage.attempt.asked_us, START_US);
    start(DLOCK_EXTENDING, 0, IO_MS);
    CHECK_HEARD(0, EXTEND);
    say(0, ":1\r\n");
    CHECK_HEARD(1, EXTEND "; WAIT 2 100"); /* the same connection */
    say(1, ":1\r\n:1\r\n");
    CHECK_DONE(DLOCK_NO_REPLICAS, false);
    CHECK_EQUAL(stage.deployment->withdrawals.count, 0);
    start(DLOCK_RELEASING, 0, IO_MS);
    CHECK_HEARD(0, RELEASE);
    say(0, ":1\r\n");
    CHECK_DONE(DLOCK_OK, false);
}

TEST(an_extension_in_the_background_waits_an_io_timeout_for_replicas_at_most) {
    need_replicas(2);
    stage.attempt.is_background = true;
    stage.attempt.terms.replica_timeout_ms = 2 * IO_MS;
    start(DLOCK_EXTENDING, 0, IO_MS);
    say(0, ":1\r\n");
    CHECK_HEARD(1, EXTEND "; WAIT 2 1000");
    say(1, ":1\r\n:2\r\n");
    CHECK_DONE(DLOCK_OK, false);
    stage.attempt.is_background = false;
    start(DLOCK_EXTENDING, 0, IO_MS);
    say(0, ":1\r\n");
    CHECK_HEARD(1, EXTEND "; WAIT 2 2000");
    say(1, ":1\r\n:2\r\n");
    CHECK_DONE(DLOCK_OK, false);
}

TEST(a_grant_with_too_few_replicas_is_undone) {
    need_replicas(2);
    start_acquire(0);
    CHECK_HEARD(0, ACQUIRE);
    say(0, ":7\r\n");
    say(1, ":1\r\n:1\r\n");
    CHECK_HEARD(0, RELEASE);
    CHECK_EQUAL(stage.done_count, 0);
    say(0, ":1\r\n");
    CHECK_DONE(DLOCK_NO_REPLICAS, false);
    CHECK_EQUAL(stage.attempt.fate, TOKEN_UNHELD);
    CHECK(stage.router.is_doubted);
    CHECK_EQUAL(stage.deployment->withdrawals.count, 0);
}

TEST(a_grant_that_is_lost_before_replicas_have_it_is_no_grant) {
    need_replicas(2);
    start_acquire(0);
    say(0, ":7\r\n");
    say(1, ":0\r\n:2\r\n");
    CHECK_DONE(DLOCK_NO_REPLICAS, false);
}

/* The token holds the lock, or others of its names. */
TEST(a_grant_that_the_server_refuses_to_write_is_to_be_withdrawn) {
    need_replicas(2);
    start_acquire(0);
    say(0, ":7\r\n");
    say(1, "-NOREPLICAS too few\r\n:0\r\n");
    CHECK_DONE(DLOCK_REFUSED, true);
    CHECK_EQUAL(stage.attempt.fate, TOKEN_HELD);
    CHECK_TEXT(stage.attempt.token, TOKEN);
}

TEST(a_grant_by_an_event_needs_replicas_too) {
    need_replicas(1);
    wait_in_queue(WAIT_MS);
    say(1, EVENTS("1") GRANTED("1", "8", "0"));
    CHECK_EQUAL(stage.done_count, 0);
    CHECK_HEARD(2, EXTEND "; WAIT 1 100");
    say(2, ":1\r\n:1\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(stage.attempt.fence, 8);
}

/* -- ties. Link 0: the session. Link 1: the command connection */

static void start_tied(bool is_endless, bool is_momentary, int64_t wait_ms) {
    stage.tie.is_endless = is_endless;
    stage.tie.is_momentary = is_momentary;
    stage.attempt.terms.tie = &stage.tie;
    start_acquire(wait_ms);
}

TEST(a_lock_is_tied_once_the_session_is_open) {
    start_tied(true, false, 0);
    CHECK_EQUAL(the_peer.link_count, 1);
    pass_ms(3);
    open_session(0);
    CHECK_HEARD(1, "DLOCK.ACQUIRE lock me VIA ID SESSION");
    pass_ms(3);
    say(1, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(stage.attempt.fence, 7);
    CHECK_EQUAL(stage.attempt.asked_us, START_US); /* of the heartbeat */
    CHECK_EQUAL(stage.attempt.lease_ms, SESSION_MS);
    CHECK(stage.tie.guest.presence != NULL);
    CHECK(stage.tie.guest.table == &tie_table);
}

TEST(a_lock_that_ends_with_the_connection_says_so) {
    start_tied(false, true, 0);
    open_session(0);
    CHECK_HEARD(1, ACQUIRE " VIA ID SESSION GRACE 0");
    pass_ms(3);
    say(1, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(stage.attempt.asked_us, START_US);
    CHECK_EQUAL(stage.attempt.lease_ms, LEASE_MS);
}

TEST(a_lock_that_is_to_be_tied_is_waited_for_like_others) {
    start_tied(true, false, WAIT_MS);
    open_session(0);
    CHECK_HEARD(1, "DLOCK.ACQUIRE lock me VIA ID SESSION");
    say(1, "$-1\r\n");
    CHECK_HEARD(1, "DLOCK.ACQUIRE lock me WAIT 5000 VIA ID SESSION");
    say(1, "+QUEUED\r\n");
    pass_ms(1000);
    say(0, EVENTS("1") GRANTED("1", "8", "0"));
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(stage.attempt.fence, 8);
}

TEST(a_lock_that_is_not_taken_is_not_tied) {
    start_tied(true, false, 0);
    open_session(0);
    say(1, "$-1\r\n");
    CHECK_DONE(DLOCK_BUSY, false);
    CHECK(stage.tie.guest.presence == NULL);
}

/* Link 1 has granted the lock with fence 7. */
static void hold_tied(void) {
    start_tied(true, false, 0);
    open_session(0);
    say(1, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
    link_at(1)->heard[0] = '\0';
}

static void release_tied(bool was_in_doubt) {
    hold_tied();
    stage.attempt.fate = was_in_doubt ? TOKEN_IN_DOUBT : TOKEN_UNHELD;
    start(DLOCK_RELEASING, 0, IO_MS);
    CHECK_HEARD(1, RELEASE);
    say(1, ":1\r\n");
    CHECK_DONE(DLOCK_OK, false);
}

/* An ACQUIRE of a connection that has ended may arrive after the RELEASE, and such a lock has no
 * lease that would end it. */
TEST(a_lock_that_lasts_as_long_as_the_session_is_released_again_after_a_doubt) {
    release_tied(true);
    for (int64_t pause_ms = 20; pause_ms < 500; pause_ms *= 2) {
        CHECK_HEARD(1, RELEASE);
        say(1, ":0\r\n");
        CHECK_EQUAL(stage.deployment->withdrawals.count, 1);
        pass_ms(pause_ms - 1);
        CHECK_HEARD(1, "");
        pass_ms(1);
    }
}

TEST(a_lock_that_lasts_as_long_as_the_session_is_released_once_without_a_doubt) {
    release_tied(false);
    CHECK_EQUAL(stage.deployment->withdrawals.count, 0);
}

TEST(an_extension_of_a_lock_that_lasts_as_long_as_the_session_asks_for_its_fence) {
    hold_tied();
    start(DLOCK_EXTENDING, 0, IO_MS);
    CHECK_HEARD(1, "DLOCK.ACQUIRE lock me VIA ID SESSION");
    say(1, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK(stage.tie.guest.presence != NULL);
}

TEST(an_extension_that_finds_another_fence_is_a_loss_and_is_withdrawn) {
    hold_tied();
    start(DLOCK_EXTENDING, 0, IO_MS);
    say(1, ":8\r\n");
    CHECK_DONE(DLOCK_LOST, false);
    CHECK_HEARD(1, "DLOCK.ACQUIRE lock me VIA ID SESSION; " RELEASE);
    CHECK_EQUAL(stage.deployment->withdrawals.count, 1);
}

TEST(an_extension_that_finds_another_holder_is_a_loss) {
    hold_tied();
    start(DLOCK_EXTENDING, 0, IO_MS);
    say(1, "$-1\r\n");
    CHECK_DONE(DLOCK_LOST, false);
    CHECK_EQUAL(stage.deployment->withdrawals.count, 0);
}

TEST(a_loss_that_is_told_after_the_grant_is_noted) {
    hold_tied();
    say(0, EVENTS("1") LOST("1", "deleted"));
    CHECK(stage.tie.is_lost);
}

/* They come by different connections. */
TEST(a_loss_that_overtakes_the_reply_with_the_grant_is_noted) {
    start_tied(true, false, 0);
    open_session(0);
    say(0, EVENTS("1") LOST("1", "deleted"));
    say(1, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK(stage.tie.is_lost);
}

TEST(a_loss_that_overtakes_the_reply_to_an_extension_is_noted) {
    hold_tied();
    start(DLOCK_EXTENDING, 0, IO_MS);
    say(0, EVENTS("1") LOST("1", "deleted"));
    say(1, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK(stage.tie.is_lost);
}

TEST(a_loss_before_a_grant_by_an_event_is_of_an_earlier_grant) {
    start_tied(true, false, WAIT_MS);
    open_session(0);
    say(1, "$-1\r\n");
    say(1, "+QUEUED\r\n");
    say(0, EVENTS("2") LOST("1", "deleted") GRANTED("2", "8", "0"));
    CHECK_DONE(DLOCK_OK, false);
    CHECK(!stage.tie.is_lost);
}

/* The lock may have ended with the session, and the reply be older than that. */
TEST(a_grant_whose_session_is_forgotten_before_its_reply_is_asked_for_again) {
    start_tied(true, false, 0);
    open_session(0);
    CHECK_HEARD(1, "DLOCK.ACQUIRE lock me VIA ID SESSION");
    hang_up(0);
    say(2, "*2\r\n:2\r\n*0\r\n");
    say(1, ":7\r\n");
    CHECK_EQUAL(stage.done_count, 0);
    CHECK_HEARD(1, "DLOCK.ACQUIRE lock me VIA ID SESSION");
    say(1, "$-1\r\n");
    CHECK_DONE(DLOCK_BUSY, false);
}

TEST(a_grant_whose_session_is_forgotten_is_asked_for_again_whatever_connections_end_later) {
    start_tied(true, false, 0);
    open_session(0);
    hang_up(0);
    say(2, "*2\r\n:2\r\n*0\r\n");
    hang_up(2);
    pass_ms(20);
    say(3, "*2\r\n:2\r\n*0\r\n");
    CHECK_HEARD(1, "DLOCK.ACQUIRE lock me VIA ID SESSION");
    say(1, ":7\r\n");
    CHECK_EQUAL(stage.done_count, 0);
    CHECK_HEARD(1, "DLOCK.ACQUIRE lock me VIA ID SESSION");
    say(1, "$-1\r\n");
    CHECK_DONE(DLOCK_BUSY, false);
}

/* The session that is forgotten may have sent it, or the new one, whose connection has ended. */
TEST(what_cannot_be_asked_for_again_is_to_be_withdrawn) {
    for (int is_queued = 0; is_queued < 2; is_queued++) {
        unit_restart();
        start_tied(true, false, is_queued ? WAIT_MS : 0);
        open_session(0);
        if (is_queued) say(1, "$-1\r\n");
        hang_up(0);
        say(2, "*2\r\n:2\r\n*0\r\n");
        peer_refuse();
        hang_up(2);
        say(1, is_queued ? "+QUEUED\r\n" : ":7\r\n");
        pass_ms(IO_MS);
        CHECK_DONE(DLOCK_UNREACHABLE, true);
        CHECK_EQUAL(stage.attempt.fate, TOKEN_HELD);
        CHECK_TEXT(stage.attempt.token, TOKEN);
    }
}

TEST(a_grant_whose_session_is_forgotten_after_its_reply_is_noted) {
    hold_tied();
    hang_up(0);
    say(2, "*2\r\n:2\r\n*0\r\n");
    CHECK(stage.tie.is_forgotten);
}

TEST(a_lock_that_is_to_be_tied_is_told_at_once_that_the_server_is_away) {
    peer_refuse();
    start_tied(true, false, WAIT_MS);
    CHECK_DONE(DLOCK_UNREACHABLE, true);
    CHECK(strstr(stage.attempt.cause, "refused") != NULL);
    CHECK_EQUAL(stage.attempt.fate, TOKEN_UNHELD);
    CHECK(stage.tie.guest.presence == NULL);
}

TEST(a_lock_that_is_to_be_tied_goes_to_the_server_that_took_over) {
    start_tied(true, false, WAIT_MS);
    CHECK_HEARD(0, SESSION);
    stage.known = stage.b;
    hang_up(0);
    open_session(1);
    CHECK_HEARD(2, "DLOCK.ACQUIRE lock me VIA ID SESSION");
    say(2, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
}

TEST(a_session_in_doubt_keeps_its_token) {
    start_tied(true, false, 0);
    open_session(0);
    hang_up(1);
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    CHECK_TEXT(stage.attempt.token, TOKEN);
    CHECK_EQUAL(stage.attempt.fate, TOKEN_IN_DOUBT);
    CHECK(stage.tie.guest.presence == NULL);
}

TEST(a_lock_is_tied_again_without_replicas) {
    need_replicas(2);
    stage.attempt.is_background = true;
    start_tied(false, true, 0);
    open_session(0);
    say(1, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(stage.attempt.terms.min_replicas, 2);
}

TEST(a_lock_that_is_tied_again_is_never_undone) {
    stage.attempt.is_background = true;
    start_tied(true, false, 0);
    open_session(0);
    pass_ms(IO_MS);
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    CHECK_EQUAL(stage.attempt.fate, TOKEN_IN_DOUBT);
    CHECK_TEXT(stage.attempt.token, TOKEN);
    CHECK_HEARD(1, "DLOCK.ACQUIRE lock me VIA ID SESSION");
    CHECK_EQUAL(stage.deployment->withdrawals.count, 0);
    CHECK(stage.tie.guest.presence != NULL);
    start_acquire(0);
    deployment_abandon(stage.deployment, &stage.attempt);
    settle();
    CHECK_EQUAL(stage.deployment->withdrawals.count, 0);
    CHECK(stage.tie.guest.presence != NULL);
}

/* Such an ACQUIRE would be granted until the process ends, if it arrived after the RELEASE. The
 * attempt is late on link 1. */
static void release_behind_a_late_attempt(bool is_abandoned, dlock_operation operation) {
    hold_tied();
    stage.attempt.is_background = operation == DLOCK_ACQUIRING;
    start(operation, 0, 2 * IO_MS);
    if (is_abandoned) deployment_abandon(stage.deployment, &stage.attempt);
    pass_ms(IO_MS);
    CHECK_EQUAL(stage.done_count, is_abandoned ? 0 : 1);
    CHECK_HEARD(1, "DLOCK.ACQUIRE lock me VIA ID SESSION");
    stage.attempt.is_background = false;
    start(DLOCK_RELEASING, 0, IO_MS);
    say(2, "+PONG\r\n");
    say(2, ":1\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_HEARD(1, RELEASE);
}

TEST(a_release_follows_an_extension_that_may_arrive_late_and_take_the_lock) {
    for (int is_abandoned = 0; is_abandoned < 2; is_abandoned++) {
        unit_restart();
        release_behind_a_late_attempt(is_abandoned, DLOCK_EXTENDING);
        unit_restart();
        release_behind_a_late_attempt(is_abandoned, DLOCK_ACQUIRING);
    }
}

TEST(a_server_that_has_forgotten_the_session_is_asked_again_once_it_is_open) {
    hold_tied();
    start(DLOCK_EXTENDING, 0, IO_MS);
    say(1, "-NOSESSION no\r\n");
    CHECK_EQUAL(stage.done_count, 0);
    CHECK_HEARD(2, SESSION);
    say(2, "*2\r\n:2\r\n*0\r\n");
    CHECK_HEARD(1, "DLOCK.ACQUIRE lock me VIA ID SESSION; DLOCK.ACQUIRE lock me VIA ID SESSION");
    say(1, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
}

int main(void) {
    return unit_main(begin_stage, end_stage);
}
