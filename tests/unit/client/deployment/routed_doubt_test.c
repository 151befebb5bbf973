/* SPDX-License-Identifier: BSD-3-Clause */
/* routed_doubt_test.c - acquires that wait while their server gives no sign of life, requests that
 * may arrive late, and grants that are to be undone. */
#include "routed_world.h"

enum { SILENCE_MS = SESSION_MS / 3 + IO_MS, LONG_WAIT_MS = 600000 };

#define QUEUED ACQUIRE " WAIT 600000 VIA ID"

/* Link 0: the command connection. Link 1: the session. */
static void queue_at_the_server(void) {
    begin_stage();
    start_acquire(LONG_WAIT_MS);
    say(0, "$-1\r\n");
    open_session(1);
    CHECK_HEARD(0, ACQUIRE "; " QUEUED);
    say(0, "+QUEUED\r\n");
}

TEST(an_acquire_stays_in_the_queue_while_no_other_server_is_known) {
    queue_at_the_server();
    pass_ms(SILENCE_MS);
    CHECK(!link_at(1)->is_open);
    CHECK_EQUAL(stage.done_count, 0);
    CHECK(stage.router.is_doubted);
    CHECK_HEARD(2, SESSION);
    say(2, EVENTS("1") GRANTED("1", "7", "0"));
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(stage.attempt.fence, 7);
    CHECK_HEARD(0, "");
    end_stage();
}

TEST(an_acquire_keeps_its_place_when_the_connection_of_the_session_ends) {
    queue_at_the_server();
    hang_up(1);
    open_session(2);
    CHECK_HEARD(0, "");
    say(2, EVENTS("1") GRANTED("1", "7", "0"));
    CHECK_DONE(DLOCK_OK, false);
    end_stage();
}

TEST(an_acquire_asks_again_with_the_same_token_if_the_server_has_forgotten_the_session) {
    queue_at_the_server();
    pass_ms(400);
    hang_up(1);
    CHECK_HEARD(2, SESSION);
    say(2, "*2\r\n:2\r\n*0\r\n");
    CHECK_HEARD(0, ACQUIRE " WAIT 599600 VIA ID");
    say(0, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
    end_stage();
}

/* The lock may have been granted before the server forgot the session. */
TEST(an_acquire_that_was_queued_and_cannot_ask_again_is_to_be_withdrawn) {
    queue_at_the_server();
    hang_up(0);
    hang_up(1);
    peer_refuse();
    say(2, "*2\r\n:2\r\n*0\r\n");
    CHECK_DONE(DLOCK_UNREACHABLE, true);
    CHECK_EQUAL(stage.attempt.fate, TOKEN_HELD);
    CHECK_TEXT(stage.attempt.token, TOKEN);
    end_stage();
}

/* The request that asks again is on its way, over the same connection or another one; or it waits
 * for the session. */
TEST(an_acquire_that_asks_again_is_withdrawn_once) {
    for (int row = 0; row < 3; row++) {
        unit_restart();
        queue_at_the_server();
        if (row == 1) hang_up(0);
        hang_up(1);
        say(2, "*2\r\n:2\r\n*0\r\n");
        CHECK_HEARD(row == 1 ? 3 : 0, QUEUED);
        if (row == 2) {
            say(0, "-NOSESSION there is no such session\r\n");
            CHECK_EQUAL(stage.done_count, 0);
        }
        deployment_abandon(stage.deployment, &stage.attempt);
        CHECK_NEW_TOKEN();
        CHECK_EQUAL(stage.attempt.fate, TOKEN_UNHELD);
        settle();
        CHECK_HEARD(row == 1 ? 3 : 0, RELEASE);
        say(row == 1 ? 3 : 0, row == 2 ? ":1\r\n" : "+QUEUED\r\n:1\r\n");
        pass_ms(LEASE_MS);
        CHECK_HEARD(row == 1 ? 3 : 0, "");
        end_stage();
    }
}

TEST(an_acquire_that_was_queued_by_a_session_that_is_forgotten_asks_again) {
    begin_stage();
    start_acquire(WAIT_MS);
    say(0, "$-1\r\n");
    open_session(1);
    hang_up(1);
    say(2, "*2\r\n:2\r\n*0\r\n");
    CHECK_HEARD(0, ACQUIRE "; " ACQUIRE " WAIT 5000 VIA ID");
    say(0, "+QUEUED\r\n");
    CHECK_HEARD(0, ACQUIRE " WAIT 5000 VIA ID");
    say(0, "+QUEUED\r\n");
    CHECK_HEARD(0, "");
    CHECK_EQUAL(stage.done_count, 0);
    say(2, "*2\r\n:2\r\n*1\r\n" GRANTED("1", "7", "0"));
    CHECK_DONE(DLOCK_OK, false);
    end_stage();
}

TEST(an_acquire_leaves_for_the_server_that_took_over) {
    queue_at_the_server();
    stage.known = stage.b;
    CHECK_EQUAL(stage.done_count, 0);
    pass_ms(SILENCE_MS);
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    CHECK_EQUAL(stage.attempt.fate, TOKEN_IN_DOUBT);
    CHECK_TEXT(stage.attempt.token, TOKEN);
    CHECK_HEARD(0, "");
    end_stage();
}

/* The reply of the server to the end of the wait may be late. */
TEST(an_acquire_whose_event_does_not_come_is_withdrawn_at_the_limit) {
    begin_stage();
    start_acquire(WAIT_MS);
    say(0, "$-1\r\n");
    open_session(1);
    CHECK_HEARD(0, ACQUIRE "; " ACQUIRE " WAIT 5000 VIA ID");
    say(0, "+QUEUED\r\n");
    pass_ms(WAIT_MS + IO_MS);
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    CHECK_NEW_TOKEN();
    CHECK_HEARD(0, RELEASE);
    end_stage();
}

/* -- late arrivals */

/* The acquire is in doubt on link 0; the next attempt, on link 1, was granted. */
static void acquire_at_the_second_try(void) {
    begin_stage();
    start_acquire(WAIT_MS);
    pass_ms(IO_MS);
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    start_acquire(WAIT_MS);
    say(1, "+PONG\r\n");
    say(1, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_HEARD(0, ACQUIRE);
    CHECK_HEARD(1, "PING; " ACQUIRE);
}

TEST(a_release_follows_an_acquire_that_may_arrive_late) {
    acquire_at_the_second_try();
    stage.attempt.fate = TOKEN_IN_DOUBT;
    start(DLOCK_RELEASING, 0, IO_MS);
    CHECK_HEARD(1, RELEASE);
    CHECK_HEARD(0, ""); /* served before the other, this one would make the lock look lost */
    say(1, ":1\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_HEARD(0, RELEASE);
    end_stage();
}

/* The server has served the acquire last, and the reply to the release is on its way. */
TEST(a_release_follows_an_acquire_that_is_answered_before_the_other_release) {
    acquire_at_the_second_try();
    stage.attempt.fate = TOKEN_IN_DOUBT;
    start(DLOCK_RELEASING, 0, IO_MS);
    CHECK_HEARD(1, RELEASE);
    say(0, ":8\r\n");
    CHECK(link_at(0)->is_open);
    say(1, ":1\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_HEARD(0, RELEASE);
    say(0, ":1\r\n");
    CHECK(!link_at(0)->is_open);
    end_stage();
}

TEST(a_release_that_is_not_answered_follows_too) {
    acquire_at_the_second_try();
    stage.attempt.fate = TOKEN_IN_DOUBT;
    start(DLOCK_RELEASING, 0, IO_MS / 2);
    pass_ms(IO_MS / 2);
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    CHECK_HEARD(0, RELEASE);
    end_stage();
}

TEST(a_release_follows_each_acquire_that_may_arrive_late) {
    begin_stage();
    for (int link = 0; link < 3; link++) {
        start_acquire(WAIT_MS);
        if (link > 0) say(link, "+PONG\r\n");
        if (link < 2) pass_ms(IO_MS);
        CHECK_HEARD(link, link == 0 ? ACQUIRE : "PING; " ACQUIRE);
    }
    say(2, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
    start(DLOCK_RELEASING, 0, IO_MS);
    say(2, ":1\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_HEARD(0, RELEASE);
    CHECK_HEARD(1, RELEASE);
    CHECK_HEARD(2, RELEASE);
    end_stage();
}

TEST(nothing_follows_a_release_of_an_acquire_without_doubt) {
    acquire_at_the_second_try();
    stage.attempt.fate = TOKEN_UNHELD;
    start(DLOCK_RELEASING, 0, IO_MS);
    say(1, ":1\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_HEARD(0, "");
    end_stage();
}

TEST(a_withdrawal_follows_an_acquire_that_may_arrive_late) {
    acquire_at_the_second_try();
    withdraw(TOKEN, LEASE_MS);
    settle();
    CHECK_HEARD(1, RELEASE);
    say(1, ":0\r\n");
    CHECK_HEARD(0, RELEASE);
    end_stage();
}

TEST(a_withdrawal_at_a_server_that_hangs_is_sent_once) {
    begin_stage();
    start_acquire(WAIT_MS);
    pass_ms(IO_MS);
    CHECK_HEARD(0, ACQUIRE);
    withdraw(TOKEN, LEASE_MS);
    pass_ms(5 * IO_MS);
    CHECK_HEARD(0, RELEASE); /* behind the ACQUIRE */
    CHECK_HEARD(1, "PING");
    CHECK_EQUAL(stage.deployment->withdrawals.count, 1);
    end_stage();
}

static size_t count_after_the_lease(bool is_endless) {
    begin_stage();
    stage.tie.is_endless = is_endless;
    stage.attempt.terms.tie = &stage.tie;
    withdrawals_add(stage.deployment, &stage.attempt, LEASE_MS);
    pass_ms(2 * LEASE_MS);
    size_t count = stage.deployment->withdrawals.count;
    end_stage();
    return count;
}

/* The lock may be the session's as long as this process lives. */
TEST(a_withdrawal_goes_on_after_the_lease_if_the_lock_has_none) {
    CHECK_EQUAL(count_after_the_lease(false), 0);
    unit_restart();
    CHECK_EQUAL(count_after_the_lease(true), 1);
}

/* As if a program gave 10,001 locks back while its server is away. */
static size_t count_of_too_many(bool is_endless) {
    begin_stage();
    peer_refuse();
    stage.tie.is_endless = is_endless;
    stage.attempt.terms.tie = &stage.tie;
    for (int i = 0; i < 10001; i++)
        withdrawals_add(stage.deployment, &stage.attempt, LEASE_MS);
    size_t count = stage.deployment->withdrawals.count;
    end_stage();
    return count;
}

TEST(too_many_withdrawals_are_forgotten_unless_nothing_else_ends_the_lock) {
    CHECK_EQUAL(count_of_too_many(false), 10000);
    CHECK_EQUAL(count_of_too_many(true), 10001);
}

/* -- undoing. Link 0: the acquire and the RELEASE; link 1: EXTEND and WAIT */

static void be_granted_with_too_few_replicas(void) {
    begin_stage();
    need_replicas(2);
    start_acquire(0);
    CHECK_HEARD(0, ACQUIRE);
    say(0, ":7\r\n");
    CHECK_HEARD(1, EXTEND "; WAIT 2 100");
    pass_ms(100);
    say(1, ":1\r\n:1\r\n");
    CHECK_HEARD(0, RELEASE);
    CHECK_EQUAL(stage.done_count, 0);
}

/* index: where the RELEASE of the withdrawal is heard. */
static void check_withdrawn(int index) {
    CHECK_EQUAL(stage.attempt.fate, TOKEN_UNHELD);
    CHECK_NEW_TOKEN(); /* its RELEASE may arrive late */
    CHECK_EQUAL(stage.deployment->withdrawals.count, 1);
    CHECK_HEARD(index, RELEASE);
    end_stage();
}

TEST(an_undo_that_is_not_answered_is_withdrawn) {
    be_granted_with_too_few_replicas();
    pass_ms(IO_MS - 1);
    CHECK_EQUAL(stage.done_count, 0);
    pass_ms(1);
    CHECK_DONE(DLOCK_NO_REPLICAS, false);
    check_withdrawn(0);
}

TEST(an_undo_that_the_server_refuses_is_withdrawn) {
    be_granted_with_too_few_replicas();
    say(0, "-READONLY not any more\r\n");
    CHECK_DONE(DLOCK_NO_REPLICAS, false);
    check_withdrawn(0);
}

TEST(an_undo_whose_connection_ends_is_withdrawn) {
    be_granted_with_too_few_replicas();
    hang_up(0);
    CHECK_DONE(DLOCK_NO_REPLICAS, false);
    check_withdrawn(2);
}

TEST(an_undo_that_is_abandoned_is_withdrawn) {
    be_granted_with_too_few_replicas();
    deployment_abandon(stage.deployment, &stage.attempt);
    settle();
    CHECK_EQUAL(stage.done_count, 0);
    check_withdrawn(0);
}

int main(void) {
    return unit_main(NULL, NULL);
}
