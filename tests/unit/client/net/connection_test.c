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

TEST(a_request_gets_its_reply) {
    connection *conn = connect_peer();
    send_line(conn, "PING", &a);
    settle();
    CHECK_TEXT(link_at(0)->heard, "PING");
    CHECK_TEXT(world.journal, "");
    say(0, "+PONG\r\n");
    CHECK_TEXT(world.journal, "a=PONG, a ok");
}

TEST(pipelined_requests_get_their_replies_in_order) {
    connection *conn = send_gets(connect_peer(), 2);
    send_line(conn, "GET c", &c);
    settle();
    CHECK_TEXT(link_at(0)->heard, "GET a; GET b; GET c");
    say(0, ":1\r\n:2\r\n");
    CHECK_TEXT(world.journal, "a=1, a ok, b=2, b ok");
    say(0, ":3\r\n");
    CHECK_TEXT(world.journal, "a=1, a ok, b=2, b ok, c=3, c ok");
}

/* The reply that was read, and the send before, do not count. */
TEST(only_requests_count_as_gathered) {
    connection *conn = send_gets(connect_peer(), 1);
    world.loop->gathering.woken = 5; /* so one request is not yet a third, and two are */
    say(0, ":1\r\n");
    send_line(conn, "GET b", &b);
    settle();
    CHECK_TEXT(link_at(0)->heard, "GET a");
    send_line(conn, "GET c", &c);
    settle();
    CHECK_TEXT(link_at(0)->heard, "GET a; GET b; GET c");
}

TEST(requests_of_before_the_connection_exists_are_sent_in_order) {
    connection *conn = open_connection();
    send_line(conn, "GET a", &a);
    send_line(conn, "GET b", &b);
    CHECK(!connection_is_ready(conn));
    settle();
    CHECK(connection_is_ready(conn));
    CHECK_TEXT(link_at(0)->heard, "GET a; GET b");
}

static int indexes[4], index_count;

static void note_index(request *request, int index, const reply *reply) {
    (void)request, (void)reply;
    indexes[index_count++] = index;
}

TEST(a_request_of_several_commands_is_done_after_the_last_reply) {
    connection *conn = connect_peer();
    a.request.on_reply = note_index;
    index_count = 0;
    send_line(conn, "GET a; GET b; GET c", &a);
    settle();
    say(0, ":1\r\n:2\r\n");
    CHECK_TEXT(world.journal, "");
    say(0, ":3\r\n");
    CHECK_TEXT(world.journal, "a ok");
    CHECK_EQUAL(index_count, 3);
    CHECK(indexes[0] == 0 && indexes[1] == 1 && indexes[2] == 2);
}

TEST(replies_that_nobody_wants_are_skipped) {
    connection *conn = connect_peer();
    send_line(conn, "GET a; GET aa", NULL);
    send_line(conn, "GET b", &b);
    settle();
    say(0, ":1\r\n:11\r\n:2\r\n");
    CHECK_TEXT(world.journal, "b=2, b ok");
}

static const char replies[] = ":1\r\n$5\r\nab\r\nc\r\n*2\r\n+x\r\n$-1\r\n-ERR no\r\n";
static const char replies_journal[] = "a=1, a ok, b=ab\r\nc, b ok, c=, c ok, d=ERR no, d ok";

TEST(replies_that_are_split_anywhere_are_read) {
    for (size_t split = 1; split < sizeof(replies) - 1; split++) {
        unit_restart();
        send_gets(connect_peer(), 4);
        link_say_bytes(link_at(0), replies, split);
        settle();
        link_say_bytes(link_at(0), replies + split, sizeof(replies) - 1 - split);
        settle();
        CHECK_TEXT(world.journal, replies_journal);
    }
}

TEST(replies_that_come_byte_by_byte_are_read) {
    send_gets(connect_peer(), 4);
    for (size_t i = 0; i + 1 < sizeof(replies); i++) {
        link_say_bytes(link_at(0), replies + i, 1);
        settle();
    }
    CHECK_TEXT(world.journal, replies_journal);
}

static void send_again(record *record) {
    if (record->done_count == 1) send_line(record->arg, "GET again", record);
}

TEST(a_request_can_be_sent_again_when_it_is_done) {
    connection *conn = connect_peer();
    a.during_done = send_again;
    a.arg = conn;
    send_gets(conn, 2);
    say(0, ":1\r\n:2\r\n");
    CHECK_TEXT(link_at(0)->heard, "GET a; GET b; GET again");
    say(0, ":3\r\n");
    CHECK_TEXT(world.journal, "a=1, a ok, b=2, b ok, a=3, a ok");
}

TEST(commands_are_counted_when_they_are_sent) {
    connection *conn = connect_peer();
    send_line(conn, "GET a; GET b", NULL);
    send_line(conn, "GET c", NULL);
    CHECK_EQUAL(world.command_count, 0);
    settle();
    CHECK_EQUAL(world.command_count, 3);
}

TEST(the_time_of_sending_is_kept) {
    connection *conn = open_connection();
    send_line(conn, "GET a", &a);
    CHECK_EQUAL(a.request.sent_us, 0);
    settle();
    CHECK_EQUAL(a.request.sent_us, START_US);
}

static void note_sent(request *request) {
    CHECK_EQUAL(request->sent_us, world.now_us);
    note("sent");
}

TEST(the_sender_is_told_when_a_request_is_sent) {
    connection *conn = connect_peer();
    a.request.on_sent = note_sent;
    pass_ms(7);
    send_line(conn, "GET a", &a);
    CHECK_TEXT(world.journal, "");
    settle();
    say(0, ":1\r\n");
    CHECK_TEXT(world.journal, "sent, a=1, a ok");
}

TEST(callbacks_never_come_from_within_a_function) {
    connection *conn = connect_peer();
    send_line(conn, "GET a", &a);
    link_end(link_at(0));
    connection_fail(conn, DLOCK_UNREACHABLE, "enough");
    CHECK_TEXT(world.journal, "");
    settle();
    CHECK_TEXT(world.journal, "broken, a unreachable");
}

/* -- a flood of long replies */

enum { FLOOD_MAX = 1000, FLOOD_BEGIN = 4, MESSAGE_SIZE = 9000 };

static struct {
    int messages;
    connection *other;
    record asked;
} flood;

static void push_message(void) {
    char message[MESSAGE_SIZE + 9] = "$9000\r\n";
    memset(message + 7, '.', MESSAGE_SIZE);
    memcpy(message + 7 + MESSAGE_SIZE, "\r\n", 2);
    link_say_bytes(link_at(1), message, sizeof(message));
}

/* The server sends as fast as the client reads, until another request has its reply. */
static void take_message(request *request, int index, const reply *reply) {
    (void)request, (void)index, (void)reply;
    if (flood.messages++ == 0) send_line(flood.other, "GET a", &flood.asked);
    bool is_over = flood.asked.done_count > 0 || flood.messages >= FLOOD_MAX;
    if (!is_over) push_message();
}

static const char *answer_one(const char *command) {
    return strcmp(command, "GET a") == 0 ? ":1\r\n" : NULL;
}

TEST(a_flood_of_replies_leaves_other_requests_their_turn) {
    request flooding = {.on_reply = take_message};
    command *commands = calloc(FLOOD_MAX, sizeof(*commands));
    for (int i = 0; i < FLOOD_MAX; i++)
        command_add(&commands[i], "READ");
    the_peer.answer = answer_one;
    flood.messages = 0;
    flood.asked = new_record("a");
    flood.other = connect_peer();
    connection *flooded =
        connection_open(&world.endpoint, &(connection_owner){.on_broken = note_broken});
    connection_send(flooded, commands, FLOOD_MAX, &flooding);
    free(commands);
    settle();
    for (int i = 0; i < FLOOD_BEGIN; i++)
        push_message();
    settle();
    CHECK_TEXT(world.journal, "a=1, a ok");
    CHECK(flood.messages >= FLOOD_BEGIN && flood.messages < FLOOD_MAX);
    connection_close(flooded);
}

int main(void) {
    return unit_main(begin, end);
}
