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

/* A request that is partly sent, and another one behind it. */
static connection *send_partly(void) {
    connection *conn = connect_deaf_peer();
    send_long(conn, &a);
    settle();
    send_line(conn, "GET b", &b);
    settle();
    return conn;
}

/* The server reads all that comes. */
static void let_it_read(void) {
    for (int i = 0; i < 10; i++) {
        link_listen(link_at(0));
        settle();
    }
}

static void close_from_within(record *record) {
    (void)record;
    close_connection();
}

/* -- partly sent */

TEST(a_request_is_sent_in_parts_when_the_server_is_slow) {
    send_partly();
    let_it_read();
    CHECK_TEXT(link_at(0)->heard, "SET xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; GET b");
    say(0, ":1\r\n:2\r\n");
    CHECK_TEXT(world.journal, "a=1, a ok, b=2, b ok");
}

TEST(a_request_that_is_partly_sent_is_in_doubt) {
    send_partly();
    hang_up(0);
    CHECK_TEXT(world.journal, "broken, a in doubt, b unreachable");
}

TEST(a_request_behind_a_partly_sent_request_is_unsent) {
    send_partly();
    CHECK_EQUAL(a.request.sent_us, START_US);
    CHECK_EQUAL(b.request.sent_us, 0);
    CHECK_EQUAL(world.command_count, 1);
}

TEST(only_what_is_wholly_unsent_is_taken_back) {
    send_line(send_partly(), "GET c", &c);
    settle();
    CHECK(connection_abandon(&a.request));
    CHECK(!connection_abandon(&b.request));
    let_it_read();
    CHECK_TEXT(link_at(0)->heard, "SET xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; GET c");
    say(0, ":1\r\n:3\r\n");
    CHECK_TEXT(world.journal, "c=3, c ok");
}

/* -- failures */

TEST(the_failure_is_what_unsent_requests_are_told) {
    connection *conn = connect_peer();
    send_line(conn, "GET a", &a);
    connection_fail(conn, DLOCK_REFUSED, "no");
    settle();
    CHECK_TEXT(world.journal, "broken, a refused");
}

TEST(a_failure_is_told_once) {
    connection *conn = send_gets(connect_peer(), 1);
    connection_fail(conn, DLOCK_UNREACHABLE, "first");
    connection_fail(conn, DLOCK_PROTOCOL, "second");
    settle();
    CHECK_TEXT(world.journal, "broken, a in doubt");
    CHECK(strstr(a.cause, "first") != NULL);
}

static void move_to_new_connection(record *record) {
    if (record->done_count == 1) send_line(open_connection(), "GET again", record);
}

TEST(a_request_can_move_to_a_new_connection_when_the_old_one_ends) {
    a.during_done = move_to_new_connection;
    send_gets(connect_peer(), 1);
    hang_up(0);
    CHECK_TEXT(link_at(1)->heard, "GET again");
    say(1, ":1\r\n");
    CHECK_TEXT(world.journal, "broken, a in doubt, a=1, a ok");
}

/* -- closing */

static void fail_from_within(record *record) {
    (void)record;
    connection_fail(world.conn, DLOCK_UNREACHABLE, "enough");
}

TEST(a_connection_can_be_closed_from_within_a_reply) {
    for (size_t cut = 4; cut <= 8; cut++) {
        unit_restart();
        a.during_reply = close_from_within;
        send_gets(connect_peer(), 2);
        link_say_bytes(link_at(0), ":1\r\n:2\r\n", cut);
        settle();
        CHECK_TEXT(world.journal, "a=1");
        CHECK(!link_at(0)->is_open);
    }
}

TEST(a_connection_can_be_closed_when_a_request_is_done) {
    a.during_done = close_from_within;
    send_gets(connect_peer(), 2);
    say(0, ":1\r\n:2\r\n");
    CHECK_TEXT(world.journal, "a=1, a ok");
}

TEST(a_connection_can_fail_from_within_a_reply) {
    a.during_reply = fail_from_within;
    send_gets(connect_peer(), 2);
    say(0, ":1\r\n:2\r\n");
    CHECK_TEXT(world.journal, "a=1, broken, a in doubt, b in doubt");
}

TEST(closing_nothing_is_fine) {
    connection_close(NULL);
}

int main(void) {
    return unit_main(begin, end);
}
