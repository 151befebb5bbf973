/* SPDX-License-Identifier: BSD-3-Clause */
/* connection_test.c - requests and replies of one connection, against a scripted server.
 *
 *   connection_open_test.c    addresses and the login
 *   connection_reply_test.c   replies that make no sense, or are too long
 *   connection_abandon_test.c requests that nobody waits for any more
 *   connection_end_test.c     how a connection fails or is closed, and what its requests are
 *                             told */
#include "net_world.h"

#include "net/connection_state.h"
#include "net/loop_state.h"

/* -- stories */

/* Steps, with blanks between them:
 *
 *   a, bb     sends GET a for the record a; one request of two commands for b; _: for nobody
 *   .         all happens that is to be done now. The first time, the connection is made
 *   +1000     so many microseconds pass
 *   -a        abandons the request. The result is whether it was sent
 *   <:1\r\n   the server says this
 *   over, fail, close   the server hangs up; the connection fails; it is closed */
static void play_step(const char *step) {
    static record *const records[] = {&a, &b, &c, &d};
    char text[100] = "GET x", name = step[strspn(step, "-")];
    record *record = name < 'a' ? NULL : records[(name - 'a') % 4]; /* _, and other steps */
    if (step[0] == '<') {
        link_say(link_at(0), step + 1);
    } else if (step[0] == '.') {
        settle();
    } else if (step[0] == '+') {
        pass_us(atol(step));
    } else if (step[0] == '-') {
        bool was_sent = record->request.sent_us != 0;
        CHECK(connection_abandon(&record->request) == was_sent);
    } else if (strcmp(step, "over") == 0) {
        link_end(link_at(0));
    } else if (strcmp(step, "fail") == 0) {
        connection_fail(world.conn, DLOCK_UNREACHABLE, "enough");
    } else if (strcmp(step, "close") == 0) {
        close_connection();
    } else {
        for (size_t i = 1; i < strlen(step); i++)
            text_append(text, sizeof(text), ";GET x");
        for (char *each = text; (each = strchr(each, 'x')) != NULL;)
            *each = name;
        send_line(world.conn, text, record);
    }
}

static void play(const char *steps) {
    char text[200], *rest = NULL;
    text_copy(text, sizeof(text), steps);
    open_connection();
    for (char *step = strtok_r(text, " ", &rest); step != NULL; step = strtok_r(NULL, " ", &rest))
        play_step(step);
}

static const struct {
    const char *fact, *steps, *heard, *journal;
} stories[] = {
    {"requests from before the connection exists are sent in order", "a b .", "GET a; GET b", ""},
    {"a request gets its reply", ". a . <+PONG\r\n .", "GET a", "a=PONG, a ok"},
    {"pipelined requests get their replies in order", ". a b . c . <:1\r\n:2\r\n . <:3\r\n .",
     "GET a; GET b; GET c", "a=1, a ok, b=2, b ok, c=3, c ok"},
    {"replies that nobody wants are skipped", ". __ b . <:1\r\n:11\r\n:2\r\n .",
     "GET _; GET _; GET b", "b=2, b ok"},

    {"the reply to an abandoned request is skipped", ". a bb . -b c . <:1\r\n:2\r\n:22\r\n:3\r\n .",
     "GET a; GET b; GET b; GET c", "a=1, a ok, c=3, c ok"},
    {"an abandoned request that was not sent is never sent", ". a bb c -b . <:1\r\n:3\r\n .",
     "GET a; GET c", "a=1, a ok, c=3, c ok"},
    {"it is not sent at the end either", ". a b c -b close .", "GET a; GET c", ""},
    {"unsent requests can be abandoned in any order", ". a b c d -c -a . -b <:2\r\n:4\r\n .",
     "GET b; GET d", "d=4, d ok"},
    {"an abandoned request hears nothing of the end", ". a b . -a over .", "GET a; GET b",
     "broken, b in doubt"},
    {"a request can be abandoned after its connection has failed", ". a b . fail -a .",
     "GET a; GET b", "broken, b in doubt"},

    {"a sent request is in doubt and an unsent one is not", ". a . b fail .", "GET a",
     "broken, a in doubt, b unreachable"},
    {"the end of the server is noticed without a request", ". over .", "", "broken"},
    {"replies before the end count", ". a b . <:1\r\n: over .", "GET a; GET b",
     "a=1, a ok, broken, b in doubt"},
    {"some of the replies are not enough", ". aa . <:1\r\n over .", "GET a; GET a",
     "a=1, broken, a in doubt"},
    {"a request on a failed connection is told", ". fail a .", "", "broken, a unreachable"},
    {"what was queued before a close still arrives, and no callback comes after it",
     ". a . b <:1\r\n close +2000000", "GET a; GET b", ""},
    {"no callback comes after a close that follows a failure", ". a . fail close .", "GET a", ""},

    {"a surplus reply breaks the connection", ". a . <:1\r\n:2\r\n .", "GET a",
     "a=1, a ok, broken"},
    {"a reply to nothing at all does so too", ". <+OK\r\n .", "", "broken"},
    {"the beginning of a text is enough", ". <+O .", "", "broken"},
    {"the kind of a reply is enough", ". <: .", "", "broken"},

    {"there is no stall before the timeout", ". +5000000 a +999999", "GET a", ""},
    {"a stall is told once", ". +5000000 a +1000000 +10000000", "GET a", "stalled"},
    {"a reply puts the stall off", ". a b +900000 <:1\r\n +999999", "GET a; GET b", "a=1, a ok"},
    {"until the timeout", ". a b +900000 <:1\r\n +1000000", "GET a; GET b", "a=1, a ok, stalled"},
    {"a later request does not put the stall off", ". a +900000 b +100000", "GET a; GET b",
     "stalled"},
    {"an idle connection does not stall", ". a +1000 <:1\r\n +5000000 b +999999", "GET a; GET b",
     "a=1, a ok"},
    {"it stalls after the next request", ". a +1000 <:1\r\n +5000000 b +1000000", "GET a; GET b",
     "a=1, a ok, stalled"},
    {"an abandoned request can stall", ". a . -a +1000000", "GET a", "stalled"},
    {"replies after a stall count", ". a +3000000 <:1\r\n .", "GET a", "stalled, a=1, a ok"},
};

TEST(a_connection_does_what_the_stories_tell) {
    EACH_ROW(i, stories) {
        if (i > 0) unit_restart();
        unit.name = stories[i].fact;
        play(stories[i].steps);
        CHECK_TEXT(world.journal, stories[i].journal);
        CHECK_TEXT(link_at(0)->heard, stories[i].heard);
        CHECK(link_at(0)->is_open == (world.conn != NULL));
        if (a.status == DLOCK_UNREACHABLE) CHECK_EQUAL(a.request.sent_us, 0);
        if (b.status == DLOCK_UNREACHABLE) CHECK(b.request.sent_us == 0 && b.cause[0] == 'e');
    }
}

/* -- replies */

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

/* -- signs of life */

TEST(the_last_sign_of_life_is_known) {
    connection *conn = connect_peer();
    CHECK_EQUAL(conn->heard_us, START_US);
    int before = world.answered;
    send_line(conn, "GET a; GET aa", &a);
    pass_ms(3);
    link_say(link_at(0), ":1\r\n");
    pass_ms(4);
    CHECK_EQUAL(conn->heard_us - START_US, 3000);
    CHECK_EQUAL(world.answered, before + 1);
}

TEST(a_connection_is_idle_when_it_owes_no_reply) {
    connection *conn = connect_peer();
    CHECK(connection_is_idle(conn));
    send_line(conn, "GET a", &a);
    CHECK(!connection_is_idle(conn));
    settle();
    connection_abandon(&a.request);
    CHECK(!connection_is_idle(conn));
    say(0, ":1\r\n");
    CHECK(connection_is_idle(conn));
}

TEST(an_idle_connection_is_alive_until_the_server_says_or_ends_something) {
    connection *conn = connect_peer();
    pass_ms(20);
    CHECK(connection_is_alive(conn));
    link_say(link_at(0), ":1\r\n");
    CHECK(!connection_is_alive(conn));
    unit_restart();
    conn = connect_peer();
    pass_ms(20);
    link_end(link_at(0));
    CHECK(!connection_is_alive(conn));
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
