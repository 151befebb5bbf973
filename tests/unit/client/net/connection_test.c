/* SPDX-License-Identifier: BSD-3-Clause */
/* connection_test.c - requests and replies of one connection, against a scripted server.
 *
 *   connection_open_test.c    addresses and the login
 *   connection_reply_test.c   replies that make no sense, or are too long
 *   connection_abandon_test.c requests that nobody waits for any more
 *   connection_stall_test.c   signs of life
 *   connection_end_test.c     how a connection fails or is closed, and what its requests are
 *                             told */
#include "net_world.h"

#include "net/loop_state.h"

static void a_request_gets_its_reply(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a");
    send_line(conn, "PING", &a);
    settle();
    CHECK_TEXT(link_at(0)->heard, "PING");
    CHECK_TEXT(world.journal, "");
    link_say(link_at(0), "+PONG\r\n");
    settle();
    CHECK_TEXT(world.journal, "a=PONG, a ok");
    end();
}

static void pipelined_requests_get_their_replies_in_order(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a"), b = new_record("b"), c = new_record("c");
    send_line(conn, "GET a", &a);
    send_line(conn, "GET b", &b);
    settle();
    send_line(conn, "GET c", &c);
    settle();
    CHECK_TEXT(link_at(0)->heard, "GET a; GET b; GET c");
    link_say(link_at(0), ":1\r\n:2\r\n");
    settle();
    CHECK_TEXT(world.journal, "a=1, a ok, b=2, b ok");
    link_say(link_at(0), ":3\r\n");
    settle();
    CHECK_TEXT(world.journal, "a=1, a ok, b=2, b ok, c=3, c ok");
    end();
}

/* The reply that was read, and the send before, do not count. */
static void only_requests_count_as_gathered(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a"), b = new_record("b"), c = new_record("c");
    send_line(conn, "GET a", &a);
    settle();
    world.loop->gathering.woken = 5; /* so one request is not yet a third, and two are */
    link_say(link_at(0), ":1\r\n");
    settle();
    send_line(conn, "GET b", &b);
    settle();
    CHECK_TEXT(link_at(0)->heard, "GET a");
    send_line(conn, "GET c", &c);
    settle();
    CHECK_TEXT(link_at(0)->heard, "GET a; GET b; GET c");
    end();
}

static void requests_of_before_the_connection_exists_are_sent_in_order(void) {
    begin();
    connection *conn = open_connection();
    record a = new_record("a"), b = new_record("b");
    send_line(conn, "GET a", &a);
    send_line(conn, "GET b", &b);
    CHECK(!connection_is_ready(conn));
    settle();
    CHECK(connection_is_ready(conn));
    CHECK_TEXT(link_at(0)->heard, "GET a; GET b");
    end();
}

static int indexes[4], index_count;

static void note_index(request *request, int index, const reply *reply) {
    (void)request, (void)reply;
    indexes[index_count++] = index;
}

static void a_request_of_several_commands_is_done_after_the_last_reply(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a");
    a.request.on_reply = note_index;
    index_count = 0;
    send_line(conn, "GET a; GET b; GET c", &a);
    settle();
    link_say(link_at(0), ":1\r\n:2\r\n");
    settle();
    CHECK_TEXT(world.journal, "");
    link_say(link_at(0), ":3\r\n");
    settle();
    CHECK_TEXT(world.journal, "a ok");
    CHECK_EQUAL(index_count, 3);
    CHECK(indexes[0] == 0 && indexes[1] == 1 && indexes[2] == 2);
    end();
}

static void replies_that_nobody_wants_are_skipped(void) {
    begin();
    connection *conn = connect_peer();
    record b = new_record("b");
    send_line(conn, "GET a; GET aa", NULL);
    send_line(conn, "GET b", &b);
    settle();
    link_say(link_at(0), ":1\r\n:11\r\n:2\r\n");
    settle();
    CHECK_TEXT(world.journal, "b=2, b ok");
    end();
}

static const char replies[] = ":1\r\n$5\r\nab\r\nc\r\n*2\r\n+x\r\n$-1\r\n-ERR no\r\n";
static const char replies_journal[] = "a=1, a ok, b=ab\r\nc, b ok, c=, c ok, d=ERR no, d ok";

static void replies_that_are_split_anywhere_are_read(void) {
    for (size_t split = 1; split < sizeof(replies) - 1; split++) {
        begin();
        connection *conn = connect_peer();
        record a = new_record("a"), b = new_record("b"), c = new_record("c"), d = new_record("d");
        send_line(conn, "GET a", &a);
        send_line(conn, "GET b", &b);
        send_line(conn, "GET c", &c);
        send_line(conn, "GET d", &d);
        settle();
        link_say_bytes(link_at(0), replies, split);
        settle();
        link_say_bytes(link_at(0), replies + split, sizeof(replies) - 1 - split);
        settle();
        CHECK_TEXT(world.journal, replies_journal);
        end();
    }
}

static void replies_that_come_byte_by_byte_are_read(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a"), b = new_record("b"), c = new_record("c"), d = new_record("d");
    send_line(conn, "GET a", &a);
    send_line(conn, "GET b", &b);
    send_line(conn, "GET c", &c);
    send_line(conn, "GET d", &d);
    settle();
    for (size_t i = 0; i + 1 < sizeof(replies); i++) {
        link_say_bytes(link_at(0), replies + i, 1);
        settle();
    }
    CHECK_TEXT(world.journal, replies_journal);
    end();
}

static void send_again(record *record) {
    if (record->done_count == 1) send_line(record->arg, "GET again", record);
}

static void a_request_can_be_sent_again_when_it_is_done(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a"), b = new_record("b");
    a.during_done = send_again;
    a.arg = conn;
    send_line(conn, "GET a", &a);
    send_line(conn, "GET b", &b);
    settle();
    link_say(link_at(0), ":1\r\n:2\r\n");
    settle();
    CHECK_TEXT(link_at(0)->heard, "GET a; GET b; GET again");
    link_say(link_at(0), ":3\r\n");
    settle();
    CHECK_TEXT(world.journal, "a=1, a ok, b=2, b ok, a=3, a ok");
    end();
}

static void commands_are_counted_when_they_are_sent(void) {
    begin();
    connection *conn = connect_peer();
    send_line(conn, "GET a; GET b", NULL);
    send_line(conn, "GET c", NULL);
    CHECK_EQUAL((int64_t)world.command_count, 0);
    settle();
    CHECK_EQUAL((int64_t)world.command_count, 3);
    end();
}

static void the_time_of_sending_is_kept(void) {
    begin();
    record a = new_record("a");
    connection *conn = open_connection();
    send_line(conn, "GET a", &a);
    CHECK_EQUAL(a.request.sent_us, 0);
    settle();
    CHECK_EQUAL(a.request.sent_us, START_US);
    end();
}

static void note_sent(request *request) {
    CHECK_EQUAL(request->sent_us, world.now_us);
    note("sent");
}

static void the_sender_is_told_when_a_request_is_sent(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a");
    a.request.on_sent = note_sent;
    pass_ms(7);
    send_line(conn, "GET a", &a);
    CHECK_TEXT(world.journal, "");
    settle();
    link_say(link_at(0), ":1\r\n");
    settle();
    CHECK_TEXT(world.journal, "sent, a=1, a ok");
    end();
}

static void callbacks_never_come_from_within_a_function(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a");
    send_line(conn, "GET a", &a);
    link_end(link_at(0));
    connection_fail(conn, DLOCK_UNREACHABLE, "enough");
    CHECK_TEXT(world.journal, "");
    settle();
    CHECK_TEXT(world.journal, "broken, a unreachable");
    end();
}

int main(void) {
    UNIT_RUN(a_request_gets_its_reply);
    UNIT_RUN(pipelined_requests_get_their_replies_in_order);
    UNIT_RUN(only_requests_count_as_gathered);
    UNIT_RUN(requests_of_before_the_connection_exists_are_sent_in_order);
    UNIT_RUN(a_request_of_several_commands_is_done_after_the_last_reply);
    UNIT_RUN(replies_that_nobody_wants_are_skipped);
    UNIT_RUN(replies_that_are_split_anywhere_are_read);
    UNIT_RUN(replies_that_come_byte_by_byte_are_read);
    UNIT_RUN(a_request_can_be_sent_again_when_it_is_done);
    UNIT_RUN(commands_are_counted_when_they_are_sent);
    UNIT_RUN(the_time_of_sending_is_kept);
    UNIT_RUN(the_sender_is_told_when_a_request_is_sent);
    UNIT_RUN(callbacks_never_come_from_within_a_function);
    return unit_summary();
}
