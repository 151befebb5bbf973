/* SPDX-License-Identifier: BSD-3-Clause */
/* connection_stall_test.c - signs of life of a connection, and their absence. */
#include "net/connection_state.h"

#include "net_world.h"

TEST(a_stall_is_told_once_after_the_timeout) {
    connection *conn = connect_peer();
    pass_ms(5000);
    send_line(conn, "GET a", &a);
    pass_us(IO_MS * 1000 - 1);
    CHECK_TEXT(world.journal, "");
    pass_us(1);
    CHECK_TEXT(world.journal, "stalled");
    pass_ms(IO_MS * 10);
    CHECK_TEXT(world.journal, "stalled");
}

TEST(a_reply_puts_the_stall_off) {
    connection *conn = connect_peer();
    send_line(conn, "GET a", &a);
    send_line(conn, "GET b", &b);
    pass_ms(IO_MS - 100);
    say(0, ":1\r\n");
    forget_journal();
    pass_us(IO_MS * 1000 - 1);
    CHECK_TEXT(world.journal, "");
    pass_us(1);
    CHECK_TEXT(world.journal, "stalled");
}

TEST(a_later_request_does_not_put_the_stall_off) {
    connection *conn = connect_peer();
    send_line(conn, "GET a", &a);
    pass_ms(IO_MS - 100);
    send_line(conn, "GET b", &b);
    pass_ms(100);
    CHECK_TEXT(world.journal, "stalled");
}

TEST(an_idle_connection_does_not_stall) {
    connection *conn = connect_peer();
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
}

TEST(an_abandoned_request_can_stall) {
    send_gets(connect_peer(), 1);
    connection_abandon(&a.request);
    pass_ms(IO_MS);
    CHECK_TEXT(world.journal, "stalled");
}

TEST(replies_after_a_stall_count) {
    connection *conn = connect_peer();
    send_line(conn, "GET a", &a);
    pass_ms(IO_MS * 3);
    say(0, ":1\r\n");
    CHECK_TEXT(world.journal, "stalled, a=1, a ok");
}

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

int main(void) {
    return unit_main(begin, end);
}
