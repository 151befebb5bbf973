/* SPDX-License-Identifier: BSD-3-Clause */
/* routed_failure_test.c - attempts that meet failures: lost replies, limits, redirects,
 * discoveries; and what becomes of an acquire that is given up. */
#include "routed_world.h"

static size_t withdrawn(void) {
    return stage.deployment->withdrawals.count;
}

/* -- replies that do not come */

TEST(a_lost_reply_leaves_doubt_and_the_same_token) {
    start_acquire(WAIT_MS);
    hang_up(0);
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    CHECK_EQUAL(stage.attempt.fate, TOKEN_IN_DOUBT);
    CHECK_TEXT(stage.attempt.token, TOKEN);
    CHECK_EQUAL(withdrawn(), 0);
    CHECK(stage.router.is_doubted);
}

static void extend_at_once(attempt *attempt) {
    attempt->operation = DLOCK_EXTENDING;
    attempt->on_done = on_stage_done;
    deployment_start(stage.deployment, attempt);
}

TEST(a_request_that_a_closed_connection_kept_from_being_sent_is_sent_on_a_new_one) {
    stage.attempt.on_done = extend_at_once;
    start_acquire(0);
    link_say(link_at(0), ":7\r\n"); /* and the end is read with the reply */
    hang_up(0);
    CHECK_HEARD(0, ACQUIRE);
    CHECK_HEARD(1, EXTEND);
    say(1, ":1\r\n");
    CHECK_DONE(DLOCK_OK, false);
}

TEST(an_acquire_without_a_reply_is_given_up_at_its_limit) {
    start_acquire(0);
    pass_ms(IO_MS - 1);
    CHECK_EQUAL(stage.done_count, 0);
    pass_ms(1);
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    CHECK_CAUSE("no reply in time");
    CHECK_EQUAL(stage.attempt.fate, TOKEN_UNHELD);
    CHECK_NEW_TOKEN();
    CHECK_EQUAL(withdrawn(), 1);
    settle();
    CHECK(strstr(link_at(0)->heard, ACQUIRE "; " RELEASE) != NULL);
}

TEST(a_hung_server_is_noticed_long_before_the_end_of_the_wait) {
    start_acquire(60000);
    pass_ms(IO_MS);
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    CHECK_EQUAL(stage.attempt.fate, TOKEN_IN_DOUBT);
    CHECK_TEXT(stage.attempt.token, TOKEN);
    CHECK_HEARD(0, ACQUIRE); /* no RELEASE: the token will be sent again */
}

TEST(a_reply_that_makes_no_sense_is_withdrawn) {
    start_acquire(0);
    say(0, "+OK\r\n");
    CHECK_DONE(DLOCK_PROTOCOL, false);
    CHECK_HEARD(0, ACQUIRE "; " RELEASE);
    CHECK_EQUAL(stage.attempt.fate, TOKEN_UNHELD);
}

TEST(a_server_that_refuses_connections_is_unreachable) {
    peer_refuse();
    start_acquire(0);
    CHECK_DONE(DLOCK_UNREACHABLE, true);
    CHECK_EQUAL(stage.attempt.fate, TOKEN_UNHELD);
    CHECK(stage.router.is_doubted);
    CHECK_EQUAL(withdrawn(), 0);
}

TEST(a_session_that_cannot_be_opened_is_unreachable) {
    start_acquire(100);
    peer_refuse();
    say(0, "$-1\r\n");
    CHECK_DONE(DLOCK_UNREACHABLE, true);
    CHECK(strstr(stage.attempt.cause, "refused") != NULL);
    CHECK_EQUAL(stage.attempt.fate, TOKEN_UNHELD);
}

TEST(a_session_that_is_refused_is_refused) {
    start_acquire(WAIT_MS);
    say(0, "$-1\r\n");
    say(1, "-NOPERM no\r\n");
    CHECK_DONE(DLOCK_REFUSED, false);
    CHECK_CAUSE("NOPERM no");
}

/* After the process was stopped, all timers are due at once. */
TEST(a_wait_ends_while_its_server_is_given_up) {
    for (int64_t wait_ms = 1500; wait_ms <= 4000; wait_ms += 250) {
        unit_restart();
        start_acquire(wait_ms);
        say(0, "$-1\r\n");
        open_session(1);
        say(0, "+QUEUED\r\n");
        pass_ms(1010);
        world.now_us += 10000000;
        settle();
        CHECK_DONE(DLOCK_IN_DOUBT, true);
    }
}

/* -- giving up */

TEST(an_abandoned_acquire_is_released_on_the_same_connection) {
    start_acquire(0);
    deployment_abandon(stage.deployment, &stage.attempt);
    settle();
    CHECK_HEARD(0, ACQUIRE "; " RELEASE);
    CHECK_EQUAL(withdrawn(), 1);
    say(0, ":7\r\n:1\r\n");
    CHECK_EQUAL(withdrawn(), 0);
    CHECK_EQUAL(stage.done_count, 0);
}

TEST(an_abandoned_wait_ends_at_once) {
    wait_in_queue(WAIT_MS);
    CHECK_HEARD(0, ACQUIRE "; " ACQUIRE " WAIT 5000 VIA ID");
    deployment_abandon(stage.deployment, &stage.attempt);
    settle();
    CHECK_HEARD(0, RELEASE);
    say(0, ":0\r\n");
    CHECK_EQUAL(withdrawn(), 0);
    say(1, EVENTS("1") GRANTED("1", "8", "0")); /* too late: the RELEASE was behind */
    CHECK_EQUAL(stage.done_count, 0);
}

TEST(an_acquire_that_was_not_sent_is_just_forgotten) {
    stage.attempt.operation = DLOCK_ACQUIRING;
    stage.attempt.limit_us = world.now_us + 1000000;
    deployment_start(stage.deployment, &stage.attempt);
    deployment_abandon(stage.deployment, &stage.attempt);
    settle();
    CHECK_HEARD(0, "");
    CHECK_EQUAL(withdrawn(), 0);
    CHECK_EQUAL(stage.done_count, 0);
}

TEST(a_withdrawal_is_sent_again_until_it_is_answered) {
    withdraw(TOKEN, LEASE_MS);
    settle();
    CHECK_HEARD(0, RELEASE);
    hang_up(0);
    pass_ms(19);
    CHECK_EQUAL(the_peer.link_count, 1);
    pass_ms(1);
    CHECK_HEARD(1, RELEASE);
    hang_up(1);
    pass_ms(39);
    CHECK_EQUAL(the_peer.link_count, 2);
    pass_ms(1);
    CHECK_HEARD(2, RELEASE);
    say(2, ":0\r\n");
    CHECK_EQUAL(withdrawn(), 0);
}

TEST(a_withdrawal_that_is_refused_or_garbled_is_sent_again) {
    withdraw(TOKEN, LEASE_MS);
    settle();
    CHECK_HEARD(0, RELEASE);
    say(0, "-NOPERM not now\r\n");
    pass_ms(20);
    CHECK_HEARD(0, RELEASE);
    say(0, "?\r\n"); /* ends the connection */
    pass_ms(40);
    CHECK_HEARD(1, RELEASE);
    say(1, "-WRONGTYPE no lock\r\n");
    CHECK_EQUAL(withdrawn(), 0);
}

TEST(a_withdrawal_ends_with_its_lease) {
    peer_refuse();
    withdraw(TOKEN, 3000);
    pass_ms(2000);
    CHECK_EQUAL(withdrawn(), 1);
    pass_ms(1000);
    CHECK_EQUAL(withdrawn(), 0);
}

TEST(a_hurried_withdrawal_gets_one_more_attempt) {
    peer_refuse();
    withdraw(TOKEN, LEASE_MS);
    withdraw("other", LEASE_MS);
    settle();
    CHECK_EQUAL(withdrawn(), 2);
    finish_withdrawals();
    CHECK_EQUAL(withdrawn(), 0);
    withdraw(TOKEN, LEASE_MS);
    CHECK_EQUAL(withdrawn(), 0);
}

/* -- redirects */

TEST(a_slot_that_moved_is_followed) {
    start_acquire(0);
    say(0, "-MOVED 17 10.0.0.7:6381\r\n");
    CHECK_EQUAL(stage.follows, 1);
    CHECK(!stage.followed.is_ask && stage.followed.slot == 17 && stage.followed.port == 6381);
    CHECK_HEARD(1, ACQUIRE);
    say(1, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
}

TEST(an_ask_is_followed_with_asking) {
    start_acquire(WAIT_MS);
    say(0, "-ASK 17 10.0.0.7:6381\r\n");
    CHECK_HEARD(1, "ASKING; " ACQUIRE);
    say(1, "+OK\r\n$-1\r\n");
    open_session(2);
    CHECK_HEARD(1, "ASKING; " ACQUIRE " WAIT 5000 VIA ID");
    say(1, "+OK\r\n:7\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(stage.attempt.fence, 7);
}

TEST(an_abandoned_acquire_after_ask_is_released_with_asking) {
    start_acquire(0);
    say(0, "-ASK 17 10.0.0.7:6381\r\n");
    deployment_abandon(stage.deployment, &stage.attempt);
    settle();
    CHECK_HEARD(0, ACQUIRE "; " RELEASE);
    say(0, "-ASK 17 10.0.0.7:6381\r\n");
    CHECK_HEARD(1, "ASKING; " ACQUIRE "; ASKING; " RELEASE);
    say(1, "+OK\r\n:7\r\n+OK\r\n:1\r\n");
    CHECK_EQUAL(withdrawn(), 0);
}

TEST(redirects_that_do_not_end_are_refused) {
    stage.next = stage.a;
    start_acquire(0);
    for (int i = 0; i < 6; i++) {
        CHECK_EQUAL(stage.done_count, 0);
        say(0, "-MOVED 17 10.0.0.7:6381\r\n");
    }
    CHECK_DONE(DLOCK_REFUSED, true);
    CHECK_EQUAL(stage.follows, 5);
}

TEST(no_memory_for_a_redirect_is_told) {
    stage.next = NULL;
    start_acquire(0);
    say(0, "-MOVED 17 10.0.0.7:6381\r\n");
    CHECK_DONE(DLOCK_NO_MEMORY, false);
}

/* -- discoveries */

TEST(an_attempt_waits_until_a_server_is_known) {
    stage.known = NULL;
    stage.router.is_discovering = true;
    start_acquire(0);
    CHECK_EQUAL(the_peer.link_count, 0);
    pass_ms(10);
    stage.known = stage.b;
    end_discovery(DLOCK_OK, "");
    CHECK_HEARD(0, ACQUIRE);
    say(0, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
}

TEST(a_discovery_that_fails_is_the_result_if_no_server_is_known) {
    stage.known = NULL;
    stage.router.is_discovering = true;
    start_acquire(0);
    end_discovery(DLOCK_PROTOCOL, "s: no cluster");
    CHECK_DONE(DLOCK_PROTOCOL, false);
    CHECK_TEXT(stage.attempt.cause, "s: no cluster");
    start_acquire(0);
    end_discovery(DLOCK_UNREACHABLE, "s: away");
    CHECK_DONE(DLOCK_UNREACHABLE, true);
}

TEST(a_discovery_that_takes_too_long_is_not_waited_for) {
    stage.known = NULL;
    stage.router.is_discovering = true;
    start_acquire(0);
    pass_ms(IO_MS);
    CHECK_DONE(DLOCK_UNREACHABLE, true);
    CHECK(list_is_empty(&stage.router.waits));
}

TEST(a_known_server_is_used_after_half_of_the_time) {
    stage.router.is_discovering = true;
    start_acquire(0);
    pass_ms(IO_MS / 2 - 1);
    CHECK_EQUAL(the_peer.link_count, 0);
    pass_ms(1);
    CHECK_HEARD(0, ACQUIRE);
    say(0, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
}

TEST(a_known_server_is_used_at_once_if_discoveries_fail) {
    stage.router.is_discovering = true;
    stage.router.failure = DLOCK_UNREACHABLE;
    start_acquire(0);
    CHECK_HEARD(0, ACQUIRE);
    say(0, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
}

TEST(a_server_that_takes_no_writes_is_replaced_by_its_successor) {
    start_acquire(0);
    stage.router.is_discovering = true;
    say(0, "-READONLY no\r\n");
    CHECK_EQUAL(stage.done_count, 0);
    CHECK(stage.router.is_doubted);
    stage.known = stage.b;
    end_discovery(DLOCK_OK, "");
    CHECK_HEARD(1, ACQUIRE);
    say(1, "-READONLY no\r\n");
    CHECK_DONE(DLOCK_REFUSED, true); /* one more try, not two */
}

TEST(a_discovery_that_names_the_same_server_ends_the_attempt) {
    start_acquire(0);
    stage.router.is_discovering = true;
    say(0, "-READONLY no\r\n");
    end_discovery(DLOCK_OK, "");
    CHECK_DONE(DLOCK_REFUSED, true);
    CHECK_HEARD(0, ACQUIRE);
}

TEST(an_attempt_in_doubt_is_not_tried_elsewhere) {
    start(DLOCK_EXTENDING, 0, IO_MS);
    stage.known = stage.b;
    hang_up(0);
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    CHECK_EQUAL(stage.attempt.fate, TOKEN_UNHELD);
}

/* -- the list of servers */

static server_list listed;

static void list_servers(void) {
    for (size_t i = 0; i < listed.count; i++)
        server_free(listed.servers[i]);
    memset(&listed, 0, sizeof(listed));
    world.until_us = world.now_us + 2000;
    stage.deployment->table->list_servers(stage.deployment, world.now_us + 1000, &listed);
}

static void find_server(loop_timer *timer) {
    (void)timer;
    stage.known = stage.b;
    router_tell_waits(&stage.router, DLOCK_OK, "");
}

TEST(servers_are_listed) {
    static loop_timer discovery = {.on_due = find_server};
    list_servers();
    CHECK(listed.status == DLOCK_OK && listed.count == 1);
    stage.router.is_discovering = true;
    int64_t begun_us = world.now_us;
    loop_set_timer(world.loop, &discovery, begun_us + 500);
    list_servers();
    CHECK(listed.status == DLOCK_OK && listed.count == 1 && listed.servers[0] == stage.b);
    CHECK_EQUAL(world.now_us, begun_us + 500);
    stage.known = NULL;
    list_servers();
    CHECK(listed.status == DLOCK_UNREACHABLE && listed.count == 0);
    CHECK_TEXT(listed.cause, "no server was found in time");
    CHECK_EQUAL(world.now_us, begun_us + 1500);
}

int main(void) {
    return unit_main(begin_stage, end_stage);
}
