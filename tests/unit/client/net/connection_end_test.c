/* SPDX-License-Identifier: BSD-3-Clause */
/* connection_end_test.c - how a connection fails or is closed, and what its requests are told. */
#include "net_world.h"

enum { LONG_WORD = 400000 };

/* More than the kernel takes at once. */
static void send_long(connection *conn, record *record) {
    static char word[LONG_WORD];
    memset(word, 'x', sizeof(word));
    command command = {0};
    command_add(&command, "SET");
    command_add_bytes(&command, word, sizeof(word));
    connection_send(conn, &command, 1, &record->request);
}

/* A connection to a server that has stopped to read. */
static connection *connect_deaf_peer(void) {
    connection *conn = connect_peer();
    link_at(0)->is_deaf = true;
    return conn;
}

static void close_from_within(record *record) {
    (void)record;
    close_connection();
}

/* -- partly sent */

static void a_request_is_sent_in_parts_when_the_server_is_slow(void) {
    begin();
    connection *conn = connect_deaf_peer();
    record a = new_record("a"), b = new_record("b");
    send_long(conn, &a);
    send_line(conn, "GET b", &b);
    settle();
    for (int i = 0; i < 10; i++) {
        link_listen(link_at(0));
        settle();
    }
    CHECK_TEXT(link_at(0)->heard, "SET xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; GET b");
    link_say(link_at(0), ":1\r\n:2\r\n");
    settle();
    CHECK_TEXT(world.journal, "a=1, a ok, b=2, b ok");
    end();
}

static void a_request_that_is_partly_sent_is_in_doubt(void) {
    begin();
    connection *conn = connect_deaf_peer();
    record a = new_record("a"), b = new_record("b");
    send_long(conn, &a);
    settle();
    send_line(conn, "GET b", &b);
    settle();
    link_end(link_at(0));
    settle();
    CHECK_TEXT(world.journal, "broken, a in doubt, b unreachable");
    end();
}

static void a_request_behind_a_partly_sent_request_is_unsent(void) {
    begin();
    connection *conn = connect_deaf_peer();
    record a = new_record("a"), b = new_record("b");
    send_long(conn, &a);
    settle();
    send_line(conn, "GET b", &b);
    settle();
    CHECK_EQUAL(a.request.sent_us, START_US);
    CHECK_EQUAL(b.request.sent_us, 0);
    CHECK_EQUAL((int64_t)world.command_count, 1);
    end();
}

static void only_what_is_wholly_unsent_is_taken_back(void) {
    begin();
    connection *conn = connect_deaf_peer();
    record a = new_record("a"), b = new_record("b"), c = new_record("c");
    send_long(conn, &a);
    settle();
    send_line(conn, "GET b", &b);
    send_line(conn, "GET c", &c);
    settle();
    CHECK(connection_abandon(&a.request));
    CHECK(!connection_abandon(&b.request));
    for (int i = 0; i < 10; i++) {
        link_listen(link_at(0));
        settle();
    }
    CHECK_TEXT(link_at(0)->heard, "SET xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; GET c");
    link_say(link_at(0), ":1\r\n:3\r\n");
    settle();
    CHECK_TEXT(world.journal, "c=3, c ok");
    end();
}

/* -- failures */

static void a_sent_request_is_in_doubt_and_an_unsent_one_is_not(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a"), b = new_record("b");
    send_line(conn, "GET a", &a);
    settle();
    send_line(conn, "GET b", &b);
    connection_fail(conn, DLOCK_UNREACHABLE, "enough");
    settle();
    CHECK_TEXT(world.journal, "broken, a in doubt, b unreachable");
    CHECK_EQUAL(b.request.sent_us, 0);
    CHECK(strstr(b.cause, "enough") != NULL);
    end();
}

static void the_failure_is_what_unsent_requests_are_told(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a");
    send_line(conn, "GET a", &a);
    connection_fail(conn, DLOCK_REFUSED, "no");
    settle();
    CHECK_TEXT(world.journal, "broken, a refused");
    end();
}

static void the_end_of_the_server_is_noticed_without_a_request(void) {
    begin();
    connect_peer();
    link_end(link_at(0));
    settle();
    CHECK_TEXT(world.journal, "broken");
    end();
}

static void replies_before_the_end_count(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a"), b = new_record("b");
    send_line(conn, "GET a", &a);
    send_line(conn, "GET b", &b);
    settle();
    link_say(link_at(0), ":1\r\n:");
    link_end(link_at(0));
    settle();
    CHECK_TEXT(world.journal, "a=1, a ok, broken, b in doubt");
    end();
}

static void a_partial_set_of_replies_is_in_doubt(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a");
    send_line(conn, "GET a; GET aa", &a);
    settle();
    link_say(link_at(0), ":1\r\n");
    link_end(link_at(0));
    settle();
    CHECK_TEXT(world.journal, "a=1, broken, a in doubt");
    end();
}

static void a_failure_is_told_once(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a");
    send_line(conn, "GET a", &a);
    settle();
    connection_fail(conn, DLOCK_UNREACHABLE, "first");
    connection_fail(conn, DLOCK_PROTOCOL, "second");
    settle();
    CHECK_TEXT(world.journal, "broken, a in doubt");
    CHECK(strstr(a.cause, "first") != NULL);
    end();
}

static void a_request_on_a_failed_connection_is_told(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a");
    connection_fail(conn, DLOCK_UNREACHABLE, "enough");
    send_line(conn, "GET a", &a);
    settle();
    CHECK_TEXT(world.journal, "broken, a unreachable");
    CHECK_TEXT(link_at(0)->heard, "");
    end();
}

static void move_to_new_connection(record *record) {
    if (record->done_count == 1) send_line(open_connection(), "GET again", record);
}

static void a_request_can_move_to_a_new_connection_when_the_old_one_ends(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a");
    a.during_done = move_to_new_connection;
    send_line(conn, "GET a", &a);
    settle();
    link_end(link_at(0));
    settle();
    CHECK_TEXT(link_at(1)->heard, "GET again");
    link_say(link_at(1), ":1\r\n");
    settle();
    CHECK_TEXT(world.journal, "broken, a in doubt, a=1, a ok");
    end();
}

/* -- closing */

static void no_callback_comes_after_a_close(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a"), b = new_record("b");
    send_line(conn, "GET a", &a);
    settle();
    send_line(conn, "GET b", &b);
    link_say(link_at(0), ":1\r\n");
    close_connection();
    pass_ms(IO_MS * 2);
    CHECK_TEXT(world.journal, "");
    CHECK(!link_at(0)->is_open);
    CHECK(connection_abandon(&a.request));
    end();
}

static void no_callback_comes_after_a_close_that_follows_a_failure(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a");
    send_line(conn, "GET a", &a);
    settle();
    connection_fail(conn, DLOCK_UNREACHABLE, "enough");
    close_connection();
    settle();
    CHECK_TEXT(world.journal, "");
    end();
}

static void what_was_queued_before_a_close_still_arrives(void) {
    begin();
    connection *conn = connect_peer();
    send_line(conn, "ACQUIRE a", NULL);
    settle();
    send_line(conn, "RELEASE a", NULL);
    close_connection();
    settle();
    CHECK_TEXT(link_at(0)->heard, "ACQUIRE a; RELEASE a");
    CHECK(!link_at(0)->is_open);
    end();
}

static void fail_from_within(record *record) {
    (void)record;
    connection_fail(world.conn, DLOCK_UNREACHABLE, "enough");
}

static void a_connection_can_be_closed_from_within_a_reply(void) {
    for (size_t cut = 4; cut <= 8; cut++) {
        begin();
        connection *conn = connect_peer();
        record a = new_record("a"), b = new_record("b");
        a.during_reply = close_from_within;
        send_line(conn, "GET a", &a);
        send_line(conn, "GET b", &b);
        settle();
        link_say_bytes(link_at(0), ":1\r\n:2\r\n", cut);
        settle();
        CHECK_TEXT(world.journal, "a=1");
        CHECK(!link_at(0)->is_open);
        end();
    }
}

static void a_connection_can_be_closed_when_a_request_is_done(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a"), b = new_record("b");
    a.during_done = close_from_within;
    send_line(conn, "GET a", &a);
    send_line(conn, "GET b", &b);
    settle();
    link_say(link_at(0), ":1\r\n:2\r\n");
    settle();
    CHECK_TEXT(world.journal, "a=1, a ok");
    end();
}

static void a_connection_can_fail_from_within_a_reply(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a"), b = new_record("b");
    a.during_reply = fail_from_within;
    send_line(conn, "GET a", &a);
    send_line(conn, "GET b", &b);
    settle();
    link_say(link_at(0), ":1\r\n:2\r\n");
    settle();
    CHECK_TEXT(world.journal, "a=1, broken, a in doubt, b in doubt");
    end();
}

static void closing_nothing_is_fine(void) {
    connection_close(NULL);
}

int main(void) {
    UNIT_RUN(a_request_is_sent_in_parts_when_the_server_is_slow);
    UNIT_RUN(a_request_that_is_partly_sent_is_in_doubt);
    UNIT_RUN(a_request_behind_a_partly_sent_request_is_unsent);
    UNIT_RUN(only_what_is_wholly_unsent_is_taken_back);
    UNIT_RUN(a_sent_request_is_in_doubt_and_an_unsent_one_is_not);
    UNIT_RUN(the_failure_is_what_unsent_requests_are_told);
    UNIT_RUN(the_end_of_the_server_is_noticed_without_a_request);
    UNIT_RUN(replies_before_the_end_count);
    UNIT_RUN(a_partial_set_of_replies_is_in_doubt);
    UNIT_RUN(a_failure_is_told_once);
    UNIT_RUN(a_request_on_a_failed_connection_is_told);
    UNIT_RUN(a_request_can_move_to_a_new_connection_when_the_old_one_ends);
    UNIT_RUN(no_callback_comes_after_a_close);
    UNIT_RUN(no_callback_comes_after_a_close_that_follows_a_failure);
    UNIT_RUN(what_was_queued_before_a_close_still_arrives);
    UNIT_RUN(a_connection_can_be_closed_from_within_a_reply);
    UNIT_RUN(a_connection_can_be_closed_when_a_request_is_done);
    UNIT_RUN(a_connection_can_fail_from_within_a_reply);
    UNIT_RUN(closing_nothing_is_fine);
    return unit_summary();
}
