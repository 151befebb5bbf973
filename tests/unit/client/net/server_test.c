/* SPDX-License-Identifier: BSD-3-Clause */
/* server_test.c - the command connection of a server: reconnecting, stalls, the circuit breaker. */
#include "server_world.h"

TEST(the_command_connection_is_opened_by_the_first_request) {
    settle();
    CHECK_EQUAL(the_peer.link_count, 0);
    server_line("GET a", &a);
    settle();
    CHECK_TEXT(link_at(0)->heard, "GET a");
}

TEST(all_requests_travel_one_connection) {
    server_line("GET a", &a);
    server_line("GET b", &b);
    settle();
    server_line("GET c", &c);
    settle();
    CHECK_EQUAL(the_peer.link_count, 1);
    CHECK_TEXT(link_at(0)->heard, "GET a; GET b; GET c");
    say(0, ":1\r\n:2\r\n:3\r\n");
    CHECK_TEXT(world.journal, "a=1, a ok, b=2, b ok, c=3, c ok");
}

TEST(the_command_connection_stays_open) {
    the_peer.answer = answer_pong;
    server_line("GET a", &a);
    pass_ms(3600 * 1000);
    server_line("GET b", &b);
    settle();
    CHECK_EQUAL(the_peer.link_count, 1);
    CHECK_TEXT(link_at(0)->heard, "GET a; GET b");
}

TEST(a_request_after_a_break_opens_a_new_connection) {
    server_line("GET a", &a);
    settle();
    hang_up(0);
    CHECK_TEXT(world.journal, "a in doubt");
    CHECK_EQUAL(the_peer.link_count, 1);
    server_line("GET b", &b);
    settle();
    CHECK_TEXT(link_at(1)->heard, "GET b");
}

static void resend(record *record) {
    if (record->done_count == 1) server_line("GET again", record);
}

TEST(a_request_can_be_sent_again_when_its_connection_breaks) {
    a.during_done = resend;
    server_line("GET a", &a);
    settle();
    hang_up(0);
    CHECK_TEXT(link_at(1)->heard, "GET again");
    say(1, ":1\r\n");
    CHECK_TEXT(world.journal, "a in doubt, a=1, a ok");
}

/* The loop has not yet seen the end, or the bytes, when the next request is sent. */
TEST(a_dead_idle_connection_is_replaced_before_it_is_used) {
    for (int is_ended = 0; is_ended < 2; is_ended++) {
        unit_restart();
        server_line("GET a", &a);
        settle();
        link_say(link_at(0), ":1\r\n");
        pass_ms(20);
        if (is_ended)
            link_end(link_at(0));
        else
            link_say(link_at(0), ":666\r\n");
        server_line("GET b", &b);
        settle();
        CHECK_TEXT(link_at(0)->heard, "GET a");
        CHECK_TEXT(link_at(1)->heard, "GET b");
        say(1, ":2\r\n");
        CHECK_TEXT(world.journal, "a=1, a ok, b=2, b ok");
    }
}

TEST(a_server_that_cannot_be_reached_is_told) {
    peer_refuse();
    server_line("GET a", &a);
    CHECK_TEXT(world.journal, "");
    settle();
    CHECK_TEXT(world.journal, "a unreachable");
    CHECK(strstr(a.cause, "refused") != NULL);
}

/* -- stalls */

TEST(a_new_connection_takes_over_from_a_stalled_one) {
    server_line("GET a", &a);
    pass_us(IO_MS * 1000 - 1);
    server_line("PING", NULL);
    settle();
    CHECK_TEXT(link_at(0)->heard, "GET a; PING");
    pass_us(1);
    server_line("GET b", &b);
    settle();
    CHECK_TEXT(link_at(0)->heard, "GET a; PING");
    say(1, "+PONG\r\n");
    CHECK_TEXT(link_at(1)->heard, "PING; GET b");
    CHECK_EQUAL(open_links(), 2);
}

TEST(a_server_that_hangs_gets_no_more_requests) {
    server_line("GET a", &a);
    pass_ms(IO_MS);
    for (int i = 0; i < 5; i++) {
        server_line("GET b", &b);
        pass_ms(IO_MS);
        CHECK_EQUAL(b.status, DLOCK_UNREACHABLE);
        CHECK_TEXT(link_at(i + 1)->heard, "PING");
        CHECK_EQUAL(open_links(), 1);
    }
    say(0, ":1\r\n");
    CHECK_EQUAL(a.status, DLOCK_OK);
    server_line("GET c", &c);
    settle();
    CHECK_TEXT(link_at(6)->heard, "GET c");
}

/* These commands are not answered in time, and GET b has to go over another connection. */
static void stall(const char *commands) {
    server_line(commands, &a);
    pass_ms(IO_MS);
    server_line("GET b", &b);
    settle();
}

TEST(replies_on_a_stalled_connection_count) {
    stall("GET a");
    say(1, "+PONG\r\n");
    say(1, ":2\r\n");
    say(0, ":1\r\n");
    CHECK_TEXT(world.journal, "b=2, b ok, a=1, a ok");
}

TEST(a_stalled_connection_is_closed_once_it_owes_nothing) {
    stall("GET a; GET aa");
    say(0, ":1\r\n");
    CHECK(link_at(0)->is_open);
    say(0, ":11\r\n");
    CHECK_TEXT(world.journal, "a=1, a=11, a ok");
    CHECK(!link_at(0)->is_open);
    CHECK(link_at(1)->is_open);
}

TEST(a_stalled_connection_is_closed_once_the_requests_of_its_successor_are_answered) {
    stall("GET a");
    say(1, "+PONG\r\n");
    server_line("GET c", &c);
    settle();
    say(0, ":1\r\n");
    server_line("GET d", &d);
    settle();
    CHECK(link_at(0)->is_open);
    say(1, ":2\r\n");
    CHECK(link_at(0)->is_open);
    say(1, ":3\r\n");
    CHECK(!link_at(0)->is_open);
    CHECK_TEXT(world.journal, "a=1, a ok, b=2, b ok, c=3, c ok");
}

TEST(a_stalled_connection_is_closed_although_its_successor_breaks) {
    stall("GET a");
    say(1, "+PONG\r\n");
    say(0, ":1\r\n");
    hang_up(1);
    CHECK(link_at(0)->is_open);
    server_line("GET c", &c);
    settle();
    say(2, "+PONG\r\n");
    say(2, ":3\r\n");
    CHECK(!link_at(0)->is_open);
    CHECK_EQUAL(open_links(), 1);
}

/* Each command connection is proved, and its request is not answered. */
static void stall_in_a_row(record records[], int count) {
    for (int i = 0; i < count; i++) {
        records[i] = new_record("a");
        server_line("ACQUIRE", &records[i]);
        settle();
        if (i > 0) say(i, "+PONG\r\n");
        pass_ms(IO_MS);
        CHECK_EQUAL(the_peer.link_count, i + 1);
    }
}

TEST(commands_follow_on_all_command_connections_that_are_late) {
    static record records[3];
    line line;
    stall_in_a_row(records, 3);
    line_read(&line, "RELEASE");
    server_send_behind(the_server, line.commands);
    settle();
    CHECK_TEXT(link_at(0)->heard, "ACQUIRE; RELEASE");
    CHECK_TEXT(link_at(1)->heard, "PING; ACQUIRE; RELEASE");
    CHECK_TEXT(link_at(2)->heard, "PING; ACQUIRE; RELEASE");
    say(1, ":1\r\n:1\r\n");
    CHECK_EQUAL(records[1].status, DLOCK_OK);
    CHECK(link_at(0)->is_open && !link_at(1)->is_open && link_at(2)->is_open);
    CHECK_TEXT(world.journal, "a=1, a ok");
}

TEST(the_oldest_of_too_many_stalled_connections_is_given_up) {
    static record records[DRAINING_MAX + 1];
    records[DRAINING_MAX] = new_record("b");
    stall_in_a_row(records, DRAINING_MAX);
    CHECK_EQUAL(open_links(), DRAINING_MAX);
    CHECK_TEXT(world.journal, "");
    server_line("ACQUIRE", &records[DRAINING_MAX]);
    settle();
    say(DRAINING_MAX, "+PONG\r\n");
    pass_ms(IO_MS);
    CHECK_TEXT(world.journal, "a in doubt");
    CHECK(!link_at(0)->is_open && link_at(1)->is_open);
    CHECK_EQUAL(open_links(), DRAINING_MAX);
}

TEST(a_stalled_connection_may_break) {
    stall("GET a");
    hang_up(0);
    CHECK_TEXT(world.journal, "a in doubt");
    say(1, "+PONG\r\n");
    say(1, ":2\r\n");
    CHECK_TEXT(world.journal, "a in doubt, b=2, b ok");
}

static void on_free_due(loop_timer *timer) {
    (void)timer;
    free_the_server(NULL);
}

/* All timers that are due run before the tasks do. */
TEST(a_server_may_be_freed_before_a_connection_that_is_given_up_has_ended) {
    static loop_timer timer = {.on_due = on_free_due};
    static record records[DRAINING_MAX];
    stall_in_a_row(records, DRAINING_MAX);
    server_line("GET b", &b);
    settle();
    say(DRAINING_MAX, "+PONG\r\n");
    loop_set_timer(world.loop, &timer, world.now_us + IO_MS * 1000 + 1);
    world.now_us += IO_MS * 1000 + 1;
    settle();
    CHECK(the_server == NULL);
    CHECK_TEXT(world.journal, "a in doubt");
}

/* -- the circuit breaker */

static void fail_requests(int count) {
    for (int i = 0; i < count; i++) {
        server_line("GET a", &a);
        settle();
        CHECK_EQUAL(a.status, DLOCK_UNREACHABLE);
    }
}

TEST(a_few_failures_are_tolerated) {
    peer_refuse();
    CHECK(server_is_available(the_server));
    fail_requests(2);
    CHECK(server_is_available(the_server));
}

TEST(the_circuit_opens_after_failures_in_a_row) {
    peer_refuse();
    fail_requests(3);
    CHECK(!server_is_available(the_server));
}

TEST(a_reply_between_failures_keeps_the_circuit_closed) {
    the_peer.answer = answer_pong;
    for (int i = 0; i < 5; i++) {
        server_line("GET a", &a);
        settle();
        CHECK_EQUAL(a.status, DLOCK_OK);
        peer_refuse();
        link_end(link_at(i)); /* one failure */
        settle();
        fail_requests(1);
        CHECK(server_is_available(the_server));
        peer_listen();
    }
}

TEST(after_a_pause_one_caller_may_try) {
    peer_refuse();
    fail_requests(3);
    pass_ms(10000);
    CHECK(server_is_available(the_server));
    CHECK(!server_is_available(the_server));
    fail_requests(1);
    CHECK(!server_is_available(the_server));
}

TEST(a_trial_that_works_closes_the_circuit) {
    peer_refuse();
    fail_requests(3);
    peer_listen();
    the_peer.answer = answer_pong;
    pass_ms(10000);
    CHECK(server_is_available(the_server));
    server_line("GET a", &a);
    settle();
    CHECK_EQUAL(a.status, DLOCK_OK);
    CHECK(server_is_available(the_server));
    CHECK(server_is_available(the_server));
}

/* A hung server: the kernel accepts connections for it, but nothing is ever answered. */
TEST(stalls_in_a_row_open_the_circuit) {
    bool is_open = false;
    for (int i = 0; i < 4 && !is_open; i++) {
        server_line("GET a", NULL);
        pass_ms(IO_MS);
        is_open = !server_is_available(the_server);
    }
    CHECK(is_open);
}

/* -- life */

TEST(the_last_share_closes_the_connections) {
    server_line("GET a", &a);
    pass_ms(IO_MS);
    server_line("GET b", &b);
    settle();
    CHECK(server_share(the_server) == the_server);
    server_free(the_server);
    settle();
    CHECK_EQUAL(open_links(), 2);
    free_the_server(NULL);
    settle();
    CHECK_EQUAL(open_links(), 0);
    CHECK_TEXT(world.journal, "");
}

TEST(a_server_can_be_freed_while_its_connection_fails) {
    a.during_done = free_the_server;
    server_line("GET a", &a);
    server_line("GET b", &b);
    settle();
    hang_up(0);
    CHECK(strstr(world.journal, "a in doubt") == world.journal);
}

TEST(a_server_knows_its_address_and_times) {
    CHECK_TEXT(the_server->name, the_peer.path);
    CHECK_TEXT(the_server->endpoint.url.host, the_peer.path);
}

int main(void) {
    return unit_main(begin_server, end_server);
}
