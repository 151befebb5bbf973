/* SPDX-License-Identifier: BSD-3-Clause */
/* connection_stall_test.c - signs of life of a connection, and their absence. */
#include "net/connection_state.h"

#include "net_world.h"

static void a_stall_is_told_once_after_the_timeout(void) {
    begin();
    record a = new_record("a");
    connection *conn = connect_peer();
    pass_ms(5000);
    send_line(conn, "GET a", &a);
    pass_us(IO_MS * 1000 - 1);
    CHECK_TEXT(world.journal, "");
    pass_us(1);
    CHECK_TEXT(world.journal, "stalled");
    pass_ms(IO_MS * 10);
    CHECK_TEXT(world.journal, "stalled");
    end();
}

static void a_reply_puts_the_stall_off(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a"), b = new_record("b");
    send_line(conn, "GET a", &a);
    send_line(conn, "GET b", &b);
    pass_ms(IO_MS - 100);
    link_say(link_at(0), ":1\r\n");
    settle();
    forget_journal();
    pass_us(IO_MS * 1000 - 1);
    CHECK_TEXT(world.journal, "");
    pass_us(1);
    CHECK_TEXT(world.journal, "stalled");
    end();
}

static void a_later_request_does_not_put_the_stall_off(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a"), b = new_record("b");
    send_line(conn, "GET a", &a);
    pass_ms(IO_MS - 100);
    send_line(conn, "GET b", &b);
    pass_ms(100);
    CHECK_TEXT(world.journal, "stalled");
    end();
}

static void an_idle_connection_does_not_stall(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a"), b = new_record("b");
    send_line(conn, "GET a", &a);
    pass_ms(1);
    link_say(link_at(0), ":1\r\n");
    pass_ms(IO_MS * 5);
    CHECK_TEXT(world.journal, "a=1, a ok");
    send_line(conn, "GET b", &b);
    pass_us(IO_MS * 1000 - 1);
    CHECK_TEXT(world.journal, "a=1, a ok");
    pass_us(1);
    CHECK_TEXT(world.journal, "a=1, a ok, stalled");
    end();
}

static void an_abandoned_request_can_stall(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a");
    send_line(conn, "GET a", &a);
    settle();
    connection_abandon(&a.request);
    pass_ms(IO_MS);
    CHECK_TEXT(world.journal, "stalled");
    end();
}

static void replies_after_a_stall_count(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a");
    send_line(conn, "GET a", &a);
    pass_ms(IO_MS * 3);
    link_say(link_at(0), ":1\r\n");
    settle();
    CHECK_TEXT(world.journal, "stalled, a=1, a ok");
    end();
}

static void the_last_sign_of_life_is_known(void) {
    begin();
    connection *conn = connect_peer();
    CHECK_EQUAL(conn->heard_us, START_US);
    int before = world.answered;
    record a = new_record("a");
    send_line(conn, "GET a; GET aa", &a);
    pass_ms(3);
    link_say(link_at(0), ":1\r\n");
    pass_ms(4);
    CHECK_EQUAL(conn->heard_us - START_US, 3000);
    CHECK_EQUAL(world.answered, before + 1);
    end();
}

static void a_connection_is_idle_when_it_owes_no_reply(void) {
    begin();
    connection *conn = connect_peer();
    record a = new_record("a");
    CHECK(connection_is_idle(conn));
    send_line(conn, "GET a", &a);
    CHECK(!connection_is_idle(conn));
    settle();
    connection_abandon(&a.request);
    CHECK(!connection_is_idle(conn));
    link_say(link_at(0), ":1\r\n");
    settle();
    CHECK(connection_is_idle(conn));
    end();
}

static void an_idle_connection_is_alive_until_the_server_says_or_ends_something(void) {
    begin();
    connection *conn = connect_peer();
    pass_ms(20);
    CHECK(connection_is_alive(conn));
    link_say(link_at(0), ":1\r\n");
    CHECK(!connection_is_alive(conn));
    end();
    begin();
    conn = connect_peer();
    pass_ms(20);
    link_end(link_at(0));
    CHECK(!connection_is_alive(conn));
    end();
}

int main(void) {
    UNIT_RUN(a_stall_is_told_once_after_the_timeout);
    UNIT_RUN(a_reply_puts_the_stall_off);
    UNIT_RUN(a_later_request_does_not_put_the_stall_off);
    UNIT_RUN(an_idle_connection_does_not_stall);
    UNIT_RUN(an_abandoned_request_can_stall);
    UNIT_RUN(replies_after_a_stall_count);
    UNIT_RUN(the_last_sign_of_life_is_known);
    UNIT_RUN(a_connection_is_idle_when_it_owes_no_reply);
    UNIT_RUN(an_idle_connection_is_alive_until_the_server_says_or_ends_something);
    return unit_summary();
}
