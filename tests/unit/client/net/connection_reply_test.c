/* SPDX-License-Identifier: BSD-3-Clause */
/* connection_reply_test.c - replies that make no sense, or are too long, break a connection. */
#include "net_world.h"

enum { LONG_WORD = 300000 };

static void a_surplus_reply_breaks_the_connection(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a");
    send_line(conn, "GET a", &a);
    settle();
    link_say(link_at(0), ":1\r\n:2\r\n");
    settle();
    CHECK_TEXT(world.journal, "a=1, a ok, broken");
    CHECK(!link_at(0)->is_open);
    end();
}

static void send_other(record *record) {
    send_line(world.conn, "GET other", record->arg);
}

static void a_surplus_reply_is_never_read_as_the_reply_to_an_unsent_request(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a"), b = new_record("b");
    a.during_done = send_other;
    a.arg = &b;
    send_line(conn, "GET a", &a);
    settle();
    link_say(link_at(0), ":1\r\n:2\r\n");
    settle();
    CHECK_TEXT(world.journal, "a=1, a ok, broken, b protocol");
    CHECK_EQUAL(b.request.sent_us, 0);
    CHECK_TEXT(link_at(0)->heard, "GET a");
    end();
}

static void a_reply_to_nothing_at_all_breaks_the_connection(void) {
    const char *const surplus[] = {"+OK\r\n", "+O", ":"};
    for (int i = 0; i < 3; i++) {
        begin();
        connect_peer();
        link_say(link_at(0), surplus[i]);
        settle();
        CHECK_TEXT(world.journal, "broken");
        end();
    }
}

static void malformed_bytes_break_the_connection(void) {
    const char *const nonsense[] = {"HTTP/1.1 200 OK\r\n", "$x\r\n", ":1x\r\n", "*-2\r\n",
                                    "$3\r\nabcdef\r\n"};
    for (int i = 0; i < 5; i++) {
        begin();
        connection *conn = connect_peer();
        record a = new_record("a"), b = new_record("b"), c = new_record("c");
        send_line(conn, "GET a", &a);
        send_line(conn, "GET b", &b);
        settle();
        link_say(link_at(0), nonsense[i]);
        send_line(conn, "GET c", &c);
        connection_abandon(&c.request);
        settle();
        CHECK_TEXT(world.journal, "broken, a protocol, b in doubt");
        CHECK(a.request.sent_us != 0);
        CHECK(!link_at(0)->is_open);
        end();
    }
}

/* A reply of this many bytes in all. */
static const char *long_reply(size_t size) {
    static char bytes[LONG_WORD];
    int begin_size = snprintf(bytes, sizeof(bytes), "$%zu\r\n", size - 10);
    CHECK_EQUAL(begin_size, 8);
    memset(bytes + begin_size, 'x', sizeof(bytes) - (size_t)begin_size);
    memcpy(bytes + size - 2, "\r\n", 2);
    return bytes;
}

static void say_long_reply(size_t size) {
    link_say_bytes(link_at(0), long_reply(size), size);
}

static void a_long_reply_is_read(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a"), b = new_record("b");
    b.request.reply_bytes_max = REPLY_BYTES_MAX;
    send_line(conn, "GET a", &a);
    send_line(conn, "GET b", &b);
    settle();
    say_long_reply(50000);
    settle();
    CHECK_EQUAL(a.done_count, 1);
    say_long_reply(99999);
    settle();
    CHECK(b.done_count == 1 && b.status == DLOCK_OK);
    end();
}

static void a_reply_longer_than_the_limit_breaks_the_connection(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a"), b = new_record("b");
    send_line(conn, "GET a", &a);
    send_line(conn, "GET b", &b);
    settle();
    say_long_reply(REPLY_BYTES + 1);
    settle();
    CHECK_TEXT(world.journal, "broken, a protocol, b in doubt");
    end();
}

static void a_short_limit_holds_for_a_reply_that_comes_at_once(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a");
    a.request.reply_bytes_max = 10;
    send_line(conn, "GET a", &a);
    settle();
    link_say(link_at(0), "+0123456789\r\n");
    settle();
    CHECK_TEXT(world.journal, "broken, a protocol");
    end();
}

static void a_reply_within_the_limit_may_be_followed_by_others(void) {
    enum { FIRST = 60000, SECOND = REPLY_BYTES - FIRST, OTHER = 20000 };
    begin();
    connection *conn = connect_peer();
    record a = new_record("a"), b = new_record("b");
    send_line(conn, "GET a", &a);
    send_line(conn, "GET b", &b);
    settle();
    link_say_bytes(link_at(0), long_reply(REPLY_BYTES), FIRST);
    settle();
    link_say_bytes(link_at(0), long_reply(REPLY_BYTES) + FIRST, SECOND);
    say_long_reply(OTHER);
    settle();
    CHECK(a.done_count == 1 && a.status == DLOCK_OK);
    CHECK(b.done_count == 1 && b.status == DLOCK_OK);
    end();
}

int main(void) {
    UNIT_RUN(a_surplus_reply_breaks_the_connection);
    UNIT_RUN(a_surplus_reply_is_never_read_as_the_reply_to_an_unsent_request);
    UNIT_RUN(a_reply_to_nothing_at_all_breaks_the_connection);
    UNIT_RUN(malformed_bytes_break_the_connection);
    UNIT_RUN(a_long_reply_is_read);
    UNIT_RUN(a_reply_longer_than_the_limit_breaks_the_connection);
    UNIT_RUN(a_short_limit_holds_for_a_reply_that_comes_at_once);
    UNIT_RUN(a_reply_within_the_limit_may_be_followed_by_others);
    return unit_summary();
}
