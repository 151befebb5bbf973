/* SPDX-License-Identifier: BSD-3-Clause */
/* own_connection_test.c - connections for what blocks inside the server: kept for a second, or
 * until replies have come that are still owed, and what happens when they break. */
#include "server_world.h"

enum { KEPT_MS = 1000, LINGER_MS = 10000, IDLE_MAX = 8, KEPT_MAX = 64, MANY = 12 };

/* -- kept for a while */

TEST(it_is_another_connection_than_that_of_commands) {
    server_line("GET a", &a);
    settle();
    own_connection *own = open_own();
    CHECK(own->server == the_server);
    send_line(own->conn, "GET b", &b);
    settle();
    CHECK_TEXT(link_at(0)->heard, "GET a");
    CHECK_TEXT(link_at(1)->heard, "GET b");
    own_connection_free(own);
}

TEST(each_user_has_a_connection) {
    own_connection *one = open_own(), *other = open_own();
    CHECK_EQUAL(open_links(), 2);
    own_connection_free(one);
    own_connection_free(other);
}

TEST(one_that_is_given_back_is_used_again) {
    own_connection_free(open_own());
    pass_us(KEPT_MS * 1000 - 1);
    own_connection *own = open_own();
    CHECK_EQUAL(the_peer.link_count, 1);
    pass_ms(KEPT_MS * 3);
    CHECK_EQUAL(open_links(), 1);
    own_connection_free(own);
    pass_us(KEPT_MS * 1000 - 1);
    CHECK_EQUAL(open_links(), 1);
}

TEST(one_that_is_given_back_is_closed_after_a_second) {
    own_connection *one = open_own(), *other = open_own();
    own_connection_free(one);
    pass_ms(KEPT_MS / 2);
    own_connection_free(other);
    pass_us(KEPT_MS * 500 - 1);
    CHECK_EQUAL(open_links(), 2);
    pass_us(1);
    CHECK_EQUAL(open_links(), 1);
    pass_ms(KEPT_MS / 2);
    CHECK_EQUAL(open_links(), 0);
}

/* A server that is busy with WAIT would not read the RELEASE behind it after the end. */
TEST(one_that_owes_a_reply_stays_until_it_has_come) {
    own_connection *own = open_own();
    send_line(own->conn, "WAIT", &a);
    settle();
    connection_abandon(&a.request);
    send_line(own->conn, "RELEASE", NULL);
    own_connection_free(own);
    pass_ms(KEPT_MS * 2);
    CHECK_TEXT(link_at(0)->heard, "WAIT; RELEASE");
    CHECK_EQUAL(open_links(), 1);
    link_say(link_at(0), ":0\r\n:1\r\n");
    pass_us(KEPT_MS * 1000 - 1);
    CHECK_EQUAL(open_links(), 1);
    pass_us(1);
    CHECK_EQUAL(open_links(), 0);
}

TEST(one_that_is_not_yet_ready_is_not_kept) {
    own_connection_free(server_open_own(the_server));
    settle();
    CHECK_EQUAL(open_links(), 0);
}

TEST(only_a_few_are_kept) {
    own_connection *owns[MANY];
    for (int i = 0; i < MANY; i++)
        owns[i] = open_own();
    for (int i = 0; i < MANY; i++)
        own_connection_free(owns[i]);
    settle();
    CHECK_EQUAL(open_links(), 8);
}

/* Noticed by the loop, or only when it is taken out. */
TEST(one_that_died_while_it_was_kept_is_not_used_again) {
    for (int way = 0; way < 4; way++) {
        unit_restart();
        own_connection_free(open_own());
        pass_ms(20);
        if (way % 2 == 0)
            link_end(link_at(0));
        else
            link_say(link_at(0), ":666\r\n");
        if (way >= 2) settle();
        own_connection *own = open_own();
        send_line(own->conn, "GET a", &a);
        settle();
        CHECK_TEXT(link_at(1)->heard, "GET a");
        own_connection_free(own);
    }
}

TEST(one_that_is_kept_does_not_keep_the_server) {
    own_connection_free(open_own());
    free_the_server(NULL);
    settle();
    CHECK_EQUAL(open_links(), 0);
}

TEST(one_in_use_keeps_the_server) {
    own_connection *own = open_own();
    free_the_server(NULL);
    send_line(own->conn, "GET a", &a);
    settle();
    say(0, ":1\r\n");
    CHECK_TEXT(world.journal, "a=1, a ok");
    own_connection_free(own);
    settle();
    CHECK_EQUAL(open_links(), 0);
}

/* -- lingering */

TEST(a_connection_that_still_owes_a_reply_lingers) {
    own_connection *own = block(&a);
    connection_abandon(&a.request);
    own_connection_free(own);
    pass_us(LINGER_MS * 1000 - 1);
    CHECK_EQUAL(open_links(), 1);
    pass_us(1);
    CHECK_EQUAL(open_links(), 0);
}

TEST(a_connection_that_lingered_is_kept_like_an_idle_one_once_it_owes_nothing) {
    enum { COUNT = IDLE_MAX + 2 };
    static record all[COUNT];
    own_connection *owns[COUNT];
    for (int i = 0; i < COUNT; i++) {
        all[i] = new_record("a");
        owns[i] = block(&all[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        connection_abandon(&all[i].request);
        own_connection_free(owns[i]);
    }
    CHECK_EQUAL(open_links(), COUNT);
    for (int i = 0; i < COUNT; i++)
        say(i, ":1\r\n");
    CHECK_EQUAL(open_links(), IDLE_MAX);
    pass_us(KEPT_MS * 1000 - 1);
    CHECK_EQUAL(open_links(), IDLE_MAX);
    pass_us(1);
    CHECK_EQUAL(open_links(), 0);
}

TEST(so_many_connections_linger_at_most) {
    enum { COUNT = KEPT_MAX + 3 };
    static record all[COUNT];
    static own_connection *owns[COUNT];
    for (int i = 0; i < COUNT; i++) {
        all[i] = new_record("a");
        owns[i] = block(&all[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        connection_abandon(&all[i].request);
        own_connection_free(owns[i]);
    }
    settle();
    CHECK_EQUAL(open_links(), KEPT_MAX);
}

TEST(a_connection_that_lingers_is_not_used_while_it_owes_a_reply) {
    own_connection *own = block(&a);
    connection_abandon(&a.request);
    own_connection_free(own);
    own = block(&b);
    CHECK_TEXT(link_at(0)->heard, "WAIT");
    CHECK_TEXT(link_at(1)->heard, "WAIT");
    link_say(link_at(0), ":1\r\n");
    say(1, ":2\r\n");
    CHECK_TEXT(world.journal, "b=2, b ok");
    own_connection_free(own);
}

TEST(a_connection_that_lingered_is_used_again_once_it_owes_nothing) {
    own_connection *own = block(&a);
    connection_abandon(&a.request);
    own_connection_free(own);
    say(0, ":1\r\n");
    own = block(&b);
    CHECK_EQUAL(the_peer.link_count, 1);
    say(0, ":2\r\n");
    CHECK_TEXT(world.journal, "b=2, b ok");
    own_connection_free(own);
}

TEST(a_connection_that_lingers_may_break) {
    own_connection *own = block(&a);
    connection_abandon(&a.request);
    own_connection_free(own);
    link_end(link_at(0));
    pass_ms(LINGER_MS * 2);
    CHECK_TEXT(world.journal, "");
}

/* -- behind what is late */

TEST(commands_follow_what_may_arrive_late) {
    own_connection *lingering = block(&a), *used = block(&b);
    connection_abandon(&a.request);
    own_connection_free(lingering);
    line line;
    line_read(&line, "RELEASE");
    server_send_behind(the_server, line.commands);
    settle();
    CHECK_TEXT(link_at(0)->heard, "WAIT; RELEASE");
    CHECK_TEXT(link_at(1)->heard, "WAIT");
    own_connection_free(used);
}

TEST(nothing_follows_where_nothing_is_owed) {
    the_peer.answer = answer_pong;
    own_connection *own = open_own();
    own_connection_free(own);
    server_line("GET a", NULL);
    settle();
    line line;
    line_read(&line, "RELEASE");
    server_send_behind(the_server, line.commands);
    settle();
    CHECK_TEXT(link_at(0)->heard, "");
    CHECK_TEXT(link_at(1)->heard, "GET a");
}

/* -- breaking */

TEST(a_request_on_it_is_in_doubt_when_it_breaks) {
    own_connection *own = block(&a);
    hang_up(0);
    CHECK_TEXT(world.journal, "a in doubt");
    CHECK(own->conn == NULL);
    own_connection_free(own);
}

static own_connection *to_free;

static void free_own(record *record) {
    (void)record;
    own_connection_free(to_free);
}

TEST(one_can_be_freed_when_it_breaks) {
    to_free = block(&a);
    a.during_done = free_own;
    hang_up(0);
    CHECK_TEXT(world.journal, "a in doubt");
}

TEST(one_can_be_freed_while_it_is_about_to_break) {
    own_connection *own = block(&a);
    connection_fail(own->conn, DLOCK_UNREACHABLE, "enough");
    connection_abandon(&a.request);
    own_connection_free(own);
    settle();
    CHECK_TEXT(world.journal, "");
}

TEST(one_that_is_broken_may_be_given_back) {
    own_connection *own = open_own();
    hang_up(0);
    CHECK(own->conn == NULL);
    own_connection_free(own);
    own_connection_free(NULL);
    CHECK_EQUAL(open_links(), 0);
}

int main(void) {
    return unit_main(begin_server, end_server);
}
