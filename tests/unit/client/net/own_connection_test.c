/* SPDX-License-Identifier: BSD-3-Clause */
/* own_connection_test.c - connections for what blocks inside the server: kept for a second, and
 * what happens when they break. Parked requests: parked_test.c. */
#include "server_world.h"

enum { KEPT_MS = 1000, MANY = 12 };

/* -- kept for a while */

static void it_is_another_connection_than_that_of_commands(void) {
    begin_server();
    record a = new_record("a"), b = new_record("b");
    server_line("GET a", &a);
    settle();
    own_connection *own = open_own(false);
    CHECK(own->server == the_server);
    send_line(own->conn, "GET b", &b);
    settle();
    CHECK_TEXT(link_at(0)->heard, "GET a");
    CHECK_TEXT(link_at(1)->heard, "GET b");
    own_connection_close(own);
    end_server();
}

static void each_user_has_a_connection(void) {
    begin_server();
    own_connection *one = open_own(false), *other = open_own(false);
    CHECK_EQUAL(open_links(), 2);
    own_connection_free(one);
    own_connection_free(other);
    end_server();
}

static void one_that_is_given_back_is_used_again(void) {
    begin_server();
    own_connection_free(open_own(false));
    pass_us(KEPT_MS * 1000 - 1);
    own_connection *own = open_own(false);
    CHECK_EQUAL(the_peer.link_count, 1);
    pass_ms(KEPT_MS * 3);
    CHECK_EQUAL(open_links(), 1);
    own_connection_free(own);
    pass_us(KEPT_MS * 1000 - 1);
    CHECK_EQUAL(open_links(), 1);
    end_server();
}

static void a_new_one_is_not_one_that_was_given_back(void) {
    begin_server();
    own_connection_free(open_own(false));
    own_connection *own = server_open_new_own(the_server);
    settle();
    CHECK_EQUAL(the_peer.link_count, 2);
    own_connection_free(own);
    end_server();
}

static void a_new_one_is_ready_once_the_server_has_answered(void) {
    begin_server();
    own_connection *own = server_open_new_own(the_server);
    record a = new_record("a");
    send_line(own->conn, "GET a", &a);
    settle();
    CHECK_TEXT(link_at(0)->heard, "PING");
    link_say(link_at(0), "+PONG\r\n");
    settle();
    CHECK_TEXT(link_at(0)->heard, "PING; GET a");
    link_say(link_at(0), ":1\r\n");
    settle();
    CHECK_TEXT(world.journal, "a=1, a ok");
    own_connection_free(own);
    end_server();
}

static void one_that_is_given_back_is_closed_after_a_second(void) {
    begin_server();
    own_connection *one = open_own(false), *other = open_own(false);
    own_connection_free(one);
    pass_ms(KEPT_MS / 2);
    own_connection_free(other);
    pass_us(KEPT_MS * 500 - 1);
    CHECK_EQUAL(open_links(), 2);
    pass_us(1);
    CHECK_EQUAL(open_links(), 1);
    pass_ms(KEPT_MS / 2);
    CHECK_EQUAL(open_links(), 0);
    end_server();
}

/* A server that is busy with WAIT would not read the RELEASE behind it after the end. */
static void one_that_owes_a_reply_stays_until_it_has_come(void) {
    begin_server();
    own_connection *own = open_own(false);
    record a = new_record("a");
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
    end_server();
}

static void one_that_is_not_yet_ready_is_not_kept(void) {
    begin_server();
    own_connection_free(server_open_own(the_server, false));
    settle();
    CHECK_EQUAL(open_links(), 0);
    end_server();
}

static void one_that_is_closed_is_not_kept(void) {
    begin_server();
    own_connection_close(open_own(false));
    settle();
    CHECK_EQUAL(open_links(), 0);
    own_connection_close(NULL);
    own_connection_free(NULL);
    end_server();
}

static void only_a_few_are_kept(void) {
    begin_server();
    own_connection *owns[MANY];
    for (int i = 0; i < MANY; i++)
        owns[i] = open_own(i % 2 == 0);
    for (int i = 0; i < MANY; i++)
        own_connection_free(owns[i]);
    settle();
    CHECK_EQUAL(open_links(), 8);
    end_server();
}

/* Noticed by the loop, or only when it is taken out. */
static void one_that_died_while_it_was_kept_is_not_used_again(void) {
    for (int way = 0; way < 4; way++) {
        begin_server();
        own_connection_free(open_own(false));
        pass_ms(20);
        if (way % 2 == 0)
            link_end(link_at(0));
        else
            link_say(link_at(0), ":666\r\n");
        if (way >= 2) settle();
        own_connection *own = open_own(false);
        record a = new_record("a");
        send_line(own->conn, "GET a", &a);
        settle();
        CHECK_TEXT(link_at(1)->heard, "GET a");
        own_connection_close(own);
        end_server();
    }
}

static void one_that_is_kept_does_not_keep_the_server(void) {
    begin_server();
    own_connection_free(open_own(false));
    free_the_server(NULL);
    settle();
    CHECK_EQUAL(open_links(), 0);
    end_server();
}

static void one_in_use_keeps_the_server(void) {
    begin_server();
    record a = new_record("a");
    own_connection *own = open_own(false);
    free_the_server(NULL);
    send_line(own->conn, "GET a", &a);
    settle();
    link_say(link_at(0), ":1\r\n");
    settle();
    CHECK_TEXT(world.journal, "a=1, a ok");
    own_connection_free(own);
    settle();
    CHECK_EQUAL(open_links(), 0);
    end_server();
}

/* -- breaking */

static void note_session(void *arg) {
    note(arg);
}

static void a_break_is_told_once(void) {
    begin_server();
    char name[] = "session";
    own_connection *own = open_own(false);
    set_on_broken(own, note_session, name);
    link_end(link_at(0));
    CHECK_TEXT(world.journal, "");
    pass_ms(10000);
    CHECK_TEXT(world.journal, "session");
    CHECK(own->conn == NULL);
    own_connection_free(own);
    end_server();
}

static own_connection *to_free;

static void free_session(void *arg) {
    note(arg);
    own_connection_free(to_free);
}

static void one_can_be_freed_when_it_breaks(void) {
    begin_server();
    char name[] = "session";
    to_free = open_own(true);
    set_on_broken(to_free, free_session, name);
    link_end(link_at(0));
    settle();
    CHECK_TEXT(world.journal, "session");
    end_server();
}

static void nobody_is_told_of_a_break_after_it_was_given_back(void) {
    for (int is_used_again = 0; is_used_again < 2; is_used_again++) {
        begin_server();
        char name[] = "session";
        own_connection *own = open_own(false);
        set_on_broken(own, note_session, name);
        own_connection_free(own);
        own = is_used_again ? open_own(false) : NULL;
        link_end(link_at(0));
        pass_ms(10000);
        CHECK_TEXT(world.journal, "");
        own_connection_free(own);
        end_server();
    }
}

static void one_can_be_closed_while_it_is_about_to_break(void) {
    begin_server();
    char name[] = "session";
    record a = new_record("a");
    own_connection *own = park(&a);
    set_on_broken(own, note_session, name);
    connection_fail(own->conn, DLOCK_UNREACHABLE, "enough");
    own_connection_close(own);
    settle();
    CHECK_TEXT(world.journal, "");
    end_server();
}

static void a_request_on_it_is_in_doubt_when_it_breaks(void) {
    begin_server();
    record a = new_record("a");
    own_connection *own = park(&a);
    link_end(link_at(0));
    settle();
    CHECK_TEXT(world.journal, "a in doubt");
    CHECK(own->conn == NULL);
    own_connection_free(own);
    end_server();
}

int main(void) {
    UNIT_RUN(it_is_another_connection_than_that_of_commands);
    UNIT_RUN(each_user_has_a_connection);
    UNIT_RUN(one_that_is_given_back_is_used_again);
    UNIT_RUN(a_new_one_is_not_one_that_was_given_back);
    UNIT_RUN(a_new_one_is_ready_once_the_server_has_answered);
    UNIT_RUN(one_that_is_given_back_is_closed_after_a_second);
    UNIT_RUN(one_that_owes_a_reply_stays_until_it_has_come);
    UNIT_RUN(one_that_is_not_yet_ready_is_not_kept);
    UNIT_RUN(one_that_is_closed_is_not_kept);
    UNIT_RUN(only_a_few_are_kept);
    UNIT_RUN(one_that_died_while_it_was_kept_is_not_used_again);
    UNIT_RUN(one_that_is_kept_does_not_keep_the_server);
    UNIT_RUN(one_in_use_keeps_the_server);
    UNIT_RUN(a_break_is_told_once);
    UNIT_RUN(one_can_be_freed_when_it_breaks);
    UNIT_RUN(nobody_is_told_of_a_break_after_it_was_given_back);
    UNIT_RUN(one_can_be_closed_while_it_is_about_to_break);
    UNIT_RUN(a_request_on_it_is_in_doubt_when_it_breaks);
    return unit_summary();
}
