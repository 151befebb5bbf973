/* SPDX-License-Identifier: BSD-3-Clause */
/* connection_reply_test.c - replies that make no sense, or are too long, break a connection. */
#include "net_world.h"

enum { LONG_WORD = 300000 };

static void send_other(record *record) {
    send_line(world.conn, "GET other", record->arg);
}

TEST(a_surplus_reply_is_never_read_as_the_reply_to_an_unsent_request) {
    a.during_done = send_other;
    a.arg = &b;
    send_gets(connect_peer(), 1);
    say(0, ":1\r\n:2\r\n");
    CHECK_TEXT(world.journal, "a=1, a ok, broken, b protocol");
    CHECK_EQUAL(b.request.sent_us, 0);
    CHECK_TEXT(link_at(0)->heard, "GET a");
}

TEST(malformed_bytes_break_the_connection) {
    const char *const nonsense[] = {"HTTP/1.1 200 OK\r\n", "$x\r\n", ":1x\r\n", "*-2\r\n",
                                    "$3\r\nabcdef\r\n"};
    for (int i = 0; i < 5; i++) {
        unit_restart();
        connection *conn = send_gets(connect_peer(), 2);
        link_say(link_at(0), nonsense[i]);
        send_line(conn, "GET c", &c);
        connection_abandon(&c.request);
        settle();
        CHECK_TEXT(world.journal, "broken, a protocol, b in doubt");
        CHECK(a.request.sent_us != 0);
        CHECK(!link_at(0)->is_open);
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

TEST(a_long_reply_is_read) {
    b.request.reply_bytes_max = REPLY_BYTES_MAX;
    send_gets(connect_peer(), 2);
    say_long_reply(50000);
    settle();
    CHECK_EQUAL(a.done_count, 1);
    say_long_reply(99999);
    settle();
    CHECK(b.done_count == 1 && b.status == DLOCK_OK);
}

TEST(a_reply_longer_than_the_limit_breaks_the_connection) {
    send_gets(connect_peer(), 2);
    say_long_reply(REPLY_BYTES + 1);
    settle();
    CHECK_TEXT(world.journal, "broken, a protocol, b in doubt");
}

TEST(a_short_limit_holds_for_a_reply_that_comes_at_once) {
    a.request.reply_bytes_max = 10;
    send_gets(connect_peer(), 1);
    say(0, "+0123456789\r\n");
    CHECK_TEXT(world.journal, "broken, a protocol");
}

TEST(a_reply_within_the_limit_may_be_followed_by_others) {
    enum { FIRST = 60000, SECOND = REPLY_BYTES - FIRST, OTHER = 20000 };
    send_gets(connect_peer(), 2);
    link_say_bytes(link_at(0), long_reply(REPLY_BYTES), FIRST);
    settle();
    link_say_bytes(link_at(0), long_reply(REPLY_BYTES) + FIRST, SECOND);
    say_long_reply(OTHER);
    settle();
    CHECK(a.done_count == 1 && a.status == DLOCK_OK);
    CHECK(b.done_count == 1 && b.status == DLOCK_OK);
}

int main(void) {
    return unit_main(begin, end);
}
