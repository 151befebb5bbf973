/* SPDX-License-Identifier: BSD-3-Clause */
/* parked_test.c - connections on which a request is parked inside the server: the server is probed
 * meanwhile, and a connection that was given up lingers. */
#include "server_world.h"

enum { PROBE_MS = 2000, LINGER_MS = 10000, IDLE_MS = 1000, IDLE_MAX = 8, KEPT_MAX = 64 };

/* -- probes */

static void the_server_is_probed_while_somebody_is_parked(void) {
    begin_server();
    the_peer.answer = NULL;
    record a = new_record("a");
    own_connection *own = park(&a);
    the_peer.answer = answer_pong;
    pass_us(PROBE_MS * 1000 - 1);
    CHECK_EQUAL(the_peer.link_count, 1);
    pass_us(1);
    CHECK_TEXT(link_at(1)->heard, "PING");
    pass_ms(PROBE_MS * 2);
    CHECK_TEXT(link_at(1)->heard, "PING; PING; PING");
    CHECK_TEXT(link_at(0)->heard, "ACQUIRE WAIT");
    CHECK_TEXT(world.journal, "");
    own_connection_close(own);
    end_server();
}

static void a_parked_request_may_wait_for_long(void) {
    begin_server();
    record a = new_record("a");
    own_connection *own = park(&a);
    the_peer.answer = answer_pong;
    pass_ms(600 * 1000);
    CHECK_TEXT(world.journal, "");
    link_say(link_at(0), ":1\r\n");
    settle();
    CHECK_TEXT(world.journal, "a=1, a ok");
    own_connection_free(own);
    end_server();
}

static void replies_to_commands_make_probes_needless(void) {
    begin_server();
    record a = new_record("a");
    own_connection *own = park(&a);
    the_peer.answer = answer_pong;
    for (int i = 0; i < 10; i++) {
        server_line("GET a", NULL);
        pass_ms(PROBE_MS / 4);
    }
    CHECK(strstr(link_at(1)->heard, "PING") == NULL);
    own_connection_close(own);
    end_server();
}

static void the_server_is_not_probed_while_nobody_is_parked(void) {
    begin_server();
    the_peer.answer = answer_pong;
    own_connection *own = open_own(false);
    server_line("GET a", NULL);
    pass_ms(PROBE_MS * 5);
    CHECK_TEXT(link_at(1)->heard, "GET a");
    own_connection_close(own);
    end_server();
}

static void probing_stops_when_the_last_parked_connection_is_closed(void) {
    begin_server();
    the_peer.answer = answer_pong;
    own_connection *one = open_own(true), *other = open_own(true);
    own_connection_close(one);
    pass_ms(PROBE_MS);
    CHECK_TEXT(link_at(2)->heard, "PING");
    own_connection_close(other);
    pass_ms(PROBE_MS * 10);
    CHECK_TEXT(link_at(2)->heard, "PING");
    end_server();
}

/* The next user of the connection is not parked. */
static void probing_stops_when_the_last_parked_connection_is_given_back(void) {
    for (int is_used_again = 0; is_used_again < 2; is_used_again++) {
        begin_server();
        the_peer.answer = answer_pong;
        own_connection *own = open_own(true);
        pass_ms(PROBE_MS);
        CHECK_TEXT(link_at(1)->heard, "PING");
        own_connection_free(own);
        own = is_used_again ? open_own(false) : NULL;
        pass_ms(PROBE_MS * 10);
        CHECK_TEXT(link_at(1)->heard, "PING");
        own_connection_close(own);
        end_server();
    }
}

/* -- a server without a sign of life */

static void note_doubt(void *arg) {
    note(arg);
}

/* A parked connection with a request under way; doubts are noted by this name. */
static own_connection *park_and_listen(record *record, char *name) {
    own_connection *own = park(record);
    set_on_doubt(own, note_doubt, name);
    return own;
}

static char doubt_a[] = "doubt a", doubt_b[] = "doubt b", doubt_c[] = "doubt c";

static void the_parked_are_told_that_the_server_does_not_answer(void) {
    begin_server();
    record a = new_record("a"), b = new_record("b"), c = new_record("c");
    own_connection *one = park_and_listen(&a, doubt_a), *other = park_and_listen(&b, doubt_b);
    own_connection *unparked = open_own(false);
    set_on_doubt(unparked, note_doubt, doubt_c);
    send_line(unparked->conn, "WAIT", &c);
    pass_us((PROBE_MS + IO_MS) * 1000 - 1);
    CHECK_TEXT(world.journal, "");
    pass_us(1);
    CHECK_TEXT(world.journal, "doubt a, doubt b");
    own_connection_free(one);
    own_connection_free(other);
    own_connection_close(unparked);
    end_server();
}

static void the_parked_are_told_that_a_command_stalls(void) {
    begin_server();
    record a = new_record("a");
    own_connection *own = park_and_listen(&a, doubt_a);
    server_line("GET a", NULL);
    pass_us(IO_MS * 1000 - 1);
    CHECK_TEXT(world.journal, "");
    pass_us(1);
    CHECK_TEXT(world.journal, "doubt a");
    own_connection_free(own);
    end_server();
}

static void the_parked_are_told_that_the_server_cannot_be_reached(void) {
    begin_server();
    record a = new_record("a");
    own_connection *own = park_and_listen(&a, doubt_a);
    peer_refuse();
    pass_ms(PROBE_MS);
    CHECK_TEXT(world.journal, "doubt a");
    own_connection_free(own);
    end_server();
}

static void doubts_come_again_as_long_as_the_server_hangs(void) {
    begin_server();
    record a = new_record("a");
    own_connection *own = park_and_listen(&a, doubt_a);
    pass_ms(PROBE_MS + IO_MS);
    CHECK_TEXT(world.journal, "doubt a");
    pass_ms(PROBE_MS * 4);
    CHECK(strstr(world.journal, "doubt a, doubt a, doubt a") == world.journal);
    own_connection_close(own);
    end_server();
}

static void a_parked_request_outlives_the_doubt(void) {
    begin_server();
    record a = new_record("a");
    own_connection *own = park_and_listen(&a, doubt_a);
    pass_ms(PROBE_MS + IO_MS);
    forget_journal();
    link_say(link_at(0), ":1\r\n");
    settle();
    CHECK_TEXT(world.journal, "a=1, a ok");
    CHECK_TEXT(link_at(0)->heard, "ACQUIRE WAIT");
    own_connection_free(own);
    end_server();
}

/* A call that is told may give up the rest, and the server. */
static void close_both(void *arg) {
    own_connection **owns = arg;
    note("doubt");
    for (int i = 0; i < 2; i++) {
        own_connection_close(owns[i]);
        owns[i] = NULL;
    }
    free_the_server(NULL);
}

static void all_can_be_closed_by_the_first_that_is_told(void) {
    begin_server();
    record a = new_record("a"), b = new_record("b");
    own_connection *owns[2] = {park(&a), park(&b)};
    for (int i = 0; i < 2; i++)
        set_on_doubt(owns[i], close_both, owns);
    pass_ms(PROBE_MS + IO_MS);
    CHECK_TEXT(world.journal, "doubt");
    CHECK(the_server == NULL);
    end_server();
}

static void a_connection_that_is_unparked_is_not_probed_and_not_told(void) {
    begin_server();
    record a = new_record("a");
    own_connection *own = park_and_listen(&a, doubt_a);
    own_connection_unpark(own);
    pass_ms(PROBE_MS * 2);
    CHECK_EQUAL(the_peer.link_count, 1);
    server_line("GET a", NULL);
    pass_ms(IO_MS * 2);
    CHECK_TEXT(world.journal, "");
    own_connection_close(own);
    end_server();
}

/* -- lingering */

static void a_parked_connection_that_is_given_up_lingers(void) {
    begin_server();
    record a = new_record("a");
    own_connection *own = park(&a);
    connection_abandon(&a.request);
    own_connection_free(own);
    pass_us(LINGER_MS * 1000 - 1);
    CHECK_EQUAL(open_links(), 1);
    pass_us(1);
    CHECK_EQUAL(open_links(), 0);
    end_server();
}

static void a_connection_that_lingers_has_nobody_to_tell(void) {
    begin_server();
    record a = new_record("a");
    own_connection *own = park_and_listen(&a, doubt_a);
    connection_abandon(&a.request);
    own_connection_free(own);
    server_line("GET a", NULL);
    pass_ms(IO_MS * 2);
    CHECK_TEXT(world.journal, "");
    end_server();
}

static void a_connection_that_lingered_is_kept_like_an_idle_one_once_it_owes_nothing(void) {
    begin_server();
    enum { COUNT = IDLE_MAX + 2 };
    record all[COUNT];
    own_connection *owns[COUNT];
    for (int i = 0; i < COUNT; i++) {
        all[i] = new_record("a");
        owns[i] = park(&all[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        connection_abandon(&all[i].request);
        own_connection_free(owns[i]);
    }
    CHECK_EQUAL(open_links(), COUNT);
    for (int i = 0; i < COUNT; i++)
        link_say(link_at(i), ":1\r\n");
    settle();
    CHECK_EQUAL(open_links(), IDLE_MAX);
    pass_us(IDLE_MS * 1000 - 1);
    CHECK_EQUAL(open_links(), IDLE_MAX);
    pass_us(1);
    CHECK_EQUAL(open_links(), 0);
    end_server();
}

static void so_many_connections_linger_at_most(void) {
    begin_server();
    enum { COUNT = KEPT_MAX + 3 };
    static record all[COUNT];
    static own_connection *owns[COUNT];
    for (int i = 0; i < COUNT; i++) {
        all[i] = new_record("a");
        owns[i] = park(&all[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        connection_abandon(&all[i].request);
        own_connection_free(owns[i]);
    }
    settle();
    CHECK_EQUAL(open_links(), KEPT_MAX);
    end_server();
}

static void a_connection_that_lingers_is_not_used_while_it_owes_a_reply(void) {
    begin_server();
    record a = new_record("a"), b = new_record("b");
    own_connection *own = park(&a);
    connection_abandon(&a.request);
    own_connection_free(own);
    own = park(&b);
    CHECK_TEXT(link_at(0)->heard, "ACQUIRE WAIT");
    CHECK_TEXT(link_at(1)->heard, "ACQUIRE WAIT");
    link_say(link_at(0), ":1\r\n");
    link_say(link_at(1), ":2\r\n");
    settle();
    CHECK_TEXT(world.journal, "b=2, b ok");
    own_connection_free(own);
    end_server();
}

static void a_connection_that_lingered_is_used_again_once_it_owes_nothing(void) {
    begin_server();
    record a = new_record("a"), b = new_record("b");
    own_connection *own = park(&a);
    connection_abandon(&a.request);
    own_connection_free(own);
    link_say(link_at(0), ":1\r\n");
    settle();
    own = park(&b);
    CHECK_EQUAL(the_peer.link_count, 1);
    link_say(link_at(0), ":2\r\n");
    settle();
    CHECK_TEXT(world.journal, "b=2, b ok");
    own_connection_free(own);
    end_server();
}

static void a_connection_that_lingers_may_break(void) {
    begin_server();
    record a = new_record("a");
    own_connection *own = park(&a);
    connection_abandon(&a.request);
    own_connection_free(own);
    link_end(link_at(0));
    pass_ms(LINGER_MS * 2);
    CHECK_TEXT(world.journal, "");
    end_server();
}

/* -- behind what is late */

static void commands_follow_what_may_arrive_late(void) {
    begin_server();
    record a = new_record("a"), b = new_record("b");
    own_connection *lingering = park(&a), *used = park(&b);
    connection_abandon(&a.request);
    own_connection_free(lingering);
    line line;
    line_read(&line, "RELEASE");
    server_send_behind(the_server, line.commands);
    settle();
    CHECK_TEXT(link_at(0)->heard, "ACQUIRE WAIT; RELEASE");
    CHECK_TEXT(link_at(1)->heard, "ACQUIRE WAIT");
    own_connection_close(used);
    end_server();
}

static void commands_follow_on_a_command_connection_that_is_late(void) {
    begin_server();
    server_line("ACQUIRE", NULL);
    pass_ms(IO_MS);
    server_line("GET a", NULL);
    line line;
    line_read(&line, "RELEASE");
    server_send_behind(the_server, line.commands);
    settle();
    CHECK_TEXT(link_at(0)->heard, "ACQUIRE; RELEASE");
    CHECK_TEXT(link_at(1)->heard, "GET a");
    link_say(link_at(0), ":1\r\n:1\r\n");
    settle();
    CHECK(!link_at(0)->is_open);
    end_server();
}

static void nothing_follows_where_nothing_is_owed(void) {
    begin_server();
    the_peer.answer = answer_pong;
    own_connection *own = open_own(false);
    own_connection_free(own);
    server_line("GET a", NULL);
    settle();
    line line;
    line_read(&line, "RELEASE");
    server_send_behind(the_server, line.commands);
    settle();
    CHECK_TEXT(link_at(0)->heard, "");
    CHECK_TEXT(link_at(1)->heard, "GET a");
    end_server();
}

int main(void) {
    UNIT_RUN(the_server_is_probed_while_somebody_is_parked);
    UNIT_RUN(a_parked_request_may_wait_for_long);
    UNIT_RUN(replies_to_commands_make_probes_needless);
    UNIT_RUN(the_server_is_not_probed_while_nobody_is_parked);
    UNIT_RUN(probing_stops_when_the_last_parked_connection_is_closed);
    UNIT_RUN(probing_stops_when_the_last_parked_connection_is_given_back);
    UNIT_RUN(the_parked_are_told_that_the_server_does_not_answer);
    UNIT_RUN(the_parked_are_told_that_a_command_stalls);
    UNIT_RUN(the_parked_are_told_that_the_server_cannot_be_reached);
    UNIT_RUN(doubts_come_again_as_long_as_the_server_hangs);
    UNIT_RUN(a_parked_request_outlives_the_doubt);
    UNIT_RUN(all_can_be_closed_by_the_first_that_is_told);
    UNIT_RUN(a_connection_that_is_unparked_is_not_probed_and_not_told);
    UNIT_RUN(a_parked_connection_that_is_given_up_lingers);
    UNIT_RUN(a_connection_that_lingers_has_nobody_to_tell);
    UNIT_RUN(a_connection_that_lingered_is_kept_like_an_idle_one_once_it_owes_nothing);
    UNIT_RUN(so_many_connections_linger_at_most);
    UNIT_RUN(a_connection_that_lingers_is_not_used_while_it_owes_a_reply);
    UNIT_RUN(a_connection_that_lingered_is_used_again_once_it_owes_nothing);
    UNIT_RUN(a_connection_that_lingers_may_break);
    UNIT_RUN(commands_follow_what_may_arrive_late);
    UNIT_RUN(commands_follow_on_a_command_connection_that_is_late);
    UNIT_RUN(nothing_follows_where_nothing_is_owed);
    return unit_summary();
}
