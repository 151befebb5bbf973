/* SPDX-License-Identifier: BSD-3-Clause */
/* server_test.c - the command connection of a server: reconnecting, stalls, the circuit breaker.
 * Connections of one's own: own_connection_test.c. */
#include "server_world.h"

static void the_command_connection_is_opened_by_the_first_request(void) {
    begin_server();
    record a = new_record("a");
    settle();
    CHECK_EQUAL(the_peer.link_count, 0);
    server_line("GET a", &a);
    settle();
    CHECK_TEXT(link_at(0)->heard, "GET a");
    end_server();
}

static void all_requests_travel_one_connection(void) {
    begin_server();
    record a = new_record("a"), b = new_record("b"), c = new_record("c");
    server_line("GET a", &a);
    server_line("GET b", &b);
    settle();
    server_line("GET c", &c);
    settle();
    CHECK_EQUAL(the_peer.link_count, 1);
    CHECK_TEXT(link_at(0)->heard, "GET a; GET b; GET c");
    link_say(link_at(0), ":1\r\n:2\r\n:3\r\n");
    settle();
    CHECK_TEXT(world.journal, "a=1, a ok, b=2, b ok, c=3, c ok");
    end_server();
}

static void the_command_connection_stays_open(void) {
    begin_server();
    record a = new_record("a"), b = new_record("b");
    the_peer.answer = answer_pong;
    server_line("GET a", &a);
    pass_ms(3600 * 1000);
    server_line("GET b", &b);
    settle();
    CHECK_EQUAL(the_peer.link_count, 1);
    CHECK_TEXT(link_at(0)->heard, "GET a; GET b");
    end_server();
}

static void a_request_after_a_break_opens_a_new_connection(void) {
    begin_server();
    record a = new_record("a"), b = new_record("b");
    server_line("GET a", &a);
    settle();
    link_end(link_at(0));
    settle();
    CHECK_TEXT(world.journal, "a in doubt");
    CHECK_EQUAL(the_peer.link_count, 1);
    server_line("GET b", &b);
    settle();
    CHECK_TEXT(link_at(1)->heard, "GET b");
    end_server();
}

static void resend(record *record) {
    if (record->done_count == 1) server_line("GET again", record);
}

static void a_request_can_be_sent_again_when_its_connection_breaks(void) {
    begin_server();
    record a = new_record("a");
    a.during_done = resend;
    server_line("GET a", &a);
    settle();
    link_end(link_at(0));
    settle();
    CHECK_TEXT(link_at(1)->heard, "GET again");
    link_say(link_at(1), ":1\r\n");
    settle();
    CHECK_TEXT(world.journal, "a in doubt, a=1, a ok");
    end_server();
}

/* The loop has not yet seen the end, or the bytes, when the next request is sent. */
static void a_dead_idle_connection_is_replaced_before_it_is_used(void) {
    for (int is_ended = 0; is_ended < 2; is_ended++) {
        begin_server();
        record a = new_record("a"), b = new_record("b");
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
        link_say(link_at(1), ":2\r\n");
        settle();
        CHECK_TEXT(world.journal, "a=1, a ok, b=2, b ok");
        end_server();
    }
}

static void a_server_that_cannot_be_reached_is_told(void) {
    begin_server();
    peer_refuse();
    record a = new_record("a");
    server_line("GET a", &a);
    CHECK_TEXT(world.journal, "");
    settle();
    CHECK_TEXT(world.journal, "a unreachable");
    CHECK(strstr(a.cause, "refused") != NULL);
    end_server();
}

/* -- stalls */

static void a_new_connection_takes_over_from_a_stalled_one(void) {
    begin_server();
    record a = new_record("a"), b = new_record("b");
    server_line("GET a", &a);
    pass_us(IO_MS * 1000 - 1);
    server_line("PING", NULL);
    settle();
    CHECK_TEXT(link_at(0)->heard, "GET a; PING");
    pass_us(1);
    server_line("GET b", &b);
    settle();
    CHECK_TEXT(link_at(0)->heard, "GET a; PING");
    CHECK_TEXT(link_at(1)->heard, "GET b");
    CHECK_EQUAL(open_links(), 2);
    end_server();
}

static void replies_on_a_stalled_connection_count(void) {
    begin_server();
    record a = new_record("a"), b = new_record("b");
    server_line("GET a", &a);
    pass_ms(IO_MS);
    server_line("GET b", &b);
    settle();
    link_say(link_at(1), ":2\r\n");
    settle();
    link_say(link_at(0), ":1\r\n");
    settle();
    CHECK_TEXT(world.journal, "b=2, b ok, a=1, a ok");
    end_server();
}

static void a_stalled_connection_is_closed_once_it_owes_nothing(void) {
    begin_server();
    record a = new_record("a"), b = new_record("b");
    server_line("GET a; GET aa", &a);
    pass_ms(IO_MS);
    server_line("GET b", &b);
    settle();
    link_say(link_at(0), ":1\r\n");
    settle();
    CHECK(link_at(0)->is_open);
    link_say(link_at(0), ":11\r\n");
    settle();
    CHECK_TEXT(world.journal, "a=1, a=11, a ok");
    CHECK(!link_at(0)->is_open);
    CHECK(link_at(1)->is_open);
    end_server();
}

static void there_are_two_connections_at_most(void) {
    begin_server();
    record records[5];
    const char *const names[] = {"a", "b", "c", "d", "e"};
    for (int i = 0; i < 5; i++) {
        records[i] = new_record(names[i]);
        server_line("GET a", &records[i]);
        pass_ms(IO_MS);
        CHECK_EQUAL(the_peer.link_count, i + 1);
        CHECK(open_links() <= 2);
    }
    CHECK_TEXT(world.journal, "a in doubt, b in doubt, c in doubt, d in doubt");
    end_server();
}

static void a_stalled_connection_may_break(void) {
    begin_server();
    record a = new_record("a"), b = new_record("b");
    server_line("GET a", &a);
    pass_ms(IO_MS);
    server_line("GET b", &b);
    settle();
    link_end(link_at(0));
    settle();
    CHECK_TEXT(world.journal, "a in doubt");
    link_say(link_at(1), ":2\r\n");
    settle();
    CHECK_TEXT(world.journal, "a in doubt, b=2, b ok");
    end_server();
}

static void on_free_due(loop_timer *timer) {
    (void)timer;
    free_the_server(NULL);
}

/* All timers that are due run before the tasks do. */
static void a_server_may_be_freed_before_a_connection_that_is_given_up_has_ended(void) {
    begin_server();
    record a = new_record("a"), b = new_record("b");
    loop_timer timer = {.on_due = on_free_due};
    server_line("GET a", &a);
    pass_ms(IO_MS);
    server_line("GET b", &b);
    settle();
    loop_set_timer(world.loop, &timer, world.now_us + IO_MS * 1000 + 1);
    world.now_us += IO_MS * 1000 + 1;
    settle();
    CHECK(the_server == NULL);
    CHECK_TEXT(world.journal, "a in doubt");
    end_server();
}

/* -- the circuit breaker */

static void fail_requests(int count) {
    for (int i = 0; i < count; i++) {
        record a = new_record("a");
        server_line("GET a", &a);
        settle();
        CHECK_EQUAL(a.status, DLOCK_UNREACHABLE);
    }
}

static void a_few_failures_are_tolerated(void) {
    begin_server();
    peer_refuse();
    CHECK(server_is_available(the_server));
    fail_requests(2);
    CHECK(server_is_available(the_server));
    end_server();
}

static void the_circuit_opens_after_failures_in_a_row(void) {
    begin_server();
    peer_refuse();
    fail_requests(3);
    CHECK(!server_is_available(the_server));
    end_server();
}

static void a_reply_between_failures_keeps_the_circuit_closed(void) {
    begin_server();
    the_peer.answer = answer_pong;
    for (int i = 0; i < 5; i++) {
        record a = new_record("a");
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
    end_server();
}

static void after_a_pause_one_caller_may_try(void) {
    begin_server();
    peer_refuse();
    fail_requests(3);
    pass_ms(10000);
    CHECK(server_is_available(the_server));
    CHECK(!server_is_available(the_server));
    fail_requests(1);
    CHECK(!server_is_available(the_server));
    end_server();
}

static void a_trial_that_works_closes_the_circuit(void) {
    begin_server();
    peer_refuse();
    fail_requests(3);
    peer_listen();
    the_peer.answer = answer_pong;
    pass_ms(10000);
    CHECK(server_is_available(the_server));
    record a = new_record("a");
    server_line("GET a", &a);
    settle();
    CHECK_EQUAL(a.status, DLOCK_OK);
    CHECK(server_is_available(the_server));
    CHECK(server_is_available(the_server));
    end_server();
}

/* A hung server: the kernel accepts connections for it, but nothing is ever answered. */
static void stalls_in_a_row_open_the_circuit(void) {
    begin_server();
    bool is_open = false;
    for (int i = 0; i < 4 && !is_open; i++) {
        server_line("GET a", NULL);
        pass_ms(IO_MS);
        is_open = !server_is_available(the_server);
    }
    CHECK(is_open);
    end_server();
}

/* -- life */

static void the_last_share_closes_the_connections(void) {
    begin_server();
    record a = new_record("a"), b = new_record("b");
    server_line("GET a", &a);
    pass_ms(IO_MS);
    server_line("GET b", &b);
    settle();
    CHECK(server_share(the_server) == the_server);
    server_free(the_server);
    settle();
    CHECK_EQUAL(open_links(), 2);
    end_server();
    CHECK_TEXT(world.journal, "");
}

static void a_server_can_be_freed_while_its_connection_fails(void) {
    begin_server();
    record a = new_record("a");
    a.during_done = free_the_server;
    record b = new_record("b");
    server_line("GET a", &a);
    server_line("GET b", &b);
    settle();
    link_end(link_at(0));
    settle();
    CHECK(strstr(world.journal, "a in doubt") == world.journal);
    end_server();
}

static void a_server_knows_its_address_and_times(void) {
    begin_server();
    CHECK_TEXT(the_server->name, the_peer.path);
    CHECK_TEXT(the_server->endpoint.url.host, the_peer.path);
    end_server();
}

int main(void) {
    UNIT_RUN(the_command_connection_is_opened_by_the_first_request);
    UNIT_RUN(all_requests_travel_one_connection);
    UNIT_RUN(the_command_connection_stays_open);
    UNIT_RUN(a_request_after_a_break_opens_a_new_connection);
    UNIT_RUN(a_request_can_be_sent_again_when_its_connection_breaks);
    UNIT_RUN(a_dead_idle_connection_is_replaced_before_it_is_used);
    UNIT_RUN(a_server_that_cannot_be_reached_is_told);
    UNIT_RUN(a_new_connection_takes_over_from_a_stalled_one);
    UNIT_RUN(replies_on_a_stalled_connection_count);
    UNIT_RUN(a_stalled_connection_is_closed_once_it_owes_nothing);
    UNIT_RUN(there_are_two_connections_at_most);
    UNIT_RUN(a_stalled_connection_may_break);
    UNIT_RUN(a_server_may_be_freed_before_a_connection_that_is_given_up_has_ended);
    UNIT_RUN(a_few_failures_are_tolerated);
    UNIT_RUN(the_circuit_opens_after_failures_in_a_row);
    UNIT_RUN(a_reply_between_failures_keeps_the_circuit_closed);
    UNIT_RUN(after_a_pause_one_caller_may_try);
    UNIT_RUN(a_trial_that_works_closes_the_circuit);
    UNIT_RUN(stalls_in_a_row_open_the_circuit);
    UNIT_RUN(the_last_share_closes_the_connections);
    UNIT_RUN(a_server_can_be_freed_while_its_connection_fails);
    UNIT_RUN(a_server_knows_its_address_and_times);
    return unit_summary();
}
