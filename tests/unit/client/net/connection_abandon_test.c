/* SPDX-License-Identifier: BSD-3-Clause */
/* connection_abandon_test.c - requests that nobody waits for any more: unsent requests are never
 * sent, and replies to sent requests are skipped. */
#include "net_world.h"

TEST(of_many_unsent_requests_the_rest_is_sent_in_order) {
    enum { MANY = 40 };
    static record records[MANY];
    connection *conn = connect_peer();
    for (int i = 0; i < MANY; i++) {
        char text[16];
        snprintf(text, sizeof(text), "GET %d", i);
        records[i] = new_record("r");
        send_line(conn, text, &records[i]);
    }
    for (int i = 0; i < MANY; i++)
        if (i * 7 % MANY % 10 != 0) CHECK(!connection_abandon(&records[i * 7 % MANY].request));
    send_line(conn, "GET last", NULL);
    CHECK(!connection_abandon(&records[20].request));
    settle();
    CHECK_TEXT(link_at(0)->heard, "GET 0; GET 10; GET 30; GET last");
}

static void abandon_self(record *record) {
    CHECK(connection_abandon(&record->request));
}

static void abandon_other(record *record) {
    CHECK(connection_abandon(record->arg));
}

TEST(a_request_can_be_abandoned_by_its_own_reply) {
    connection *conn = connect_peer();
    a.during_reply = abandon_self;
    send_line(conn, "GET a; GET aa", &a);
    send_line(conn, "GET b", &b);
    settle();
    say(0, ":1\r\n:11\r\n:2\r\n");
    CHECK_TEXT(world.journal, "a=1, b=2, b ok");
}

TEST(a_request_can_be_abandoned_by_the_reply_before) {
    a.during_done = abandon_other;
    a.arg = &b.request;
    send_gets(connect_peer(), 3);
    say(0, ":1\r\n:2\r\n:3\r\n");
    CHECK_TEXT(world.journal, "a=1, a ok, c=3, c ok");
}

/* -- many */

enum { MANY = 40, MANY_ROUNDS = 50 };

typedef struct numbered {
    request request;
    int64_t number, got;
    int done_count;
} numbered;

static const char *answer_number(const char *command) {
    static char answer[32];
    snprintf(answer, sizeof(answer), ":%s\r\n", command + strlen("GET "));
    return answer;
}

static void take_number(request *request, int index, const reply *reply) {
    (void)index;
    container_of(request, numbered, request)->got = reply->integer;
}

static void count_done(request *request, dlock_status status, const char *cause) {
    (void)cause;
    container_of(request, numbered, request)->done_count += status == DLOCK_OK;
}

static void send_number(connection *conn, numbered *numbered, int64_t number) {
    char text[32];
    snprintf(text, sizeof(text), "GET %" PRId64, number);
    *numbered = (struct numbered){
        .number = number, .got = -1, .request = {.on_reply = take_number, .on_done = count_done}};
    line line;
    line_read(&line, text);
    connection_send(conn, line.commands, line.count, &numbered->request);
}

TEST(many_requests_get_their_replies_and_abandoned_ones_get_none) {
    static numbered requests[MANY];
    connection *conn = connect_peer();
    the_peer.answer = answer_number;
    for (int round = 0; round < MANY_ROUNDS; round++) {
        bool is_abandoned[MANY] = {false};
        int count = (int)unit_random_within(1, MANY);
        link_at(0)->is_deaf = true;
        link_at(0)->heard[0] = '\0';
        for (int i = 0; i < count; i++) {
            send_number(conn, &requests[i], round * MANY + i);
            if (unit_random_within(0, 9) == 5) settle();
            int other = (int)unit_random_within(0, i);
            if (unit_random_within(0, 4) != 2 || is_abandoned[other]) continue;
            is_abandoned[other] = true;
            connection_abandon(&requests[other].request);
        }
        settle();
        link_listen(link_at(0));
        settle();
        for (int i = 0; i < count; i++) {
            CHECK_EQUAL(requests[i].done_count, !is_abandoned[i]);
            CHECK_EQUAL(requests[i].got, is_abandoned[i] ? -1 : requests[i].number);
        }
    }
}

int main(void) {
    return unit_main(begin, end);
}
