/* SPDX-License-Identifier: BSD-3-Clause */
/* connection_open_test.c - how a connection begins: addresses, refusals, timeouts, the login. */
#include "net_world.h"

#include "net/loop_state.h"
#include <fcntl.h>
#include <netinet/in.h>

static const char role_master[] = "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n";
static const char role_replica[] = "*2\r\n$5\r\nslave\r\n:0\r\n";

/* -- addresses */

/* A TCP socket on the loopback address; backlog -1: nobody listens. The result is the
 * descriptor. */
static int open_tcp(int backlog, struct sockaddr_in *address) {
    socklen_t size = sizeof(*address);
    *address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(fd, (const struct sockaddr *)address, size) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)address, &size) == 0);
    if (backlog >= 0) CHECK(listen(fd, backlog) == 0);
    return fd;
}

/* The address comes before those that the endpoint knows already. */
static void prepend_address(const struct sockaddr_in *address) {
    addresses *known = &world.endpoint.known;
    for (int i = known->count++; i > 0; i--) {
        known->each[i] = known->each[i - 1];
        known->sizes[i] = known->sizes[i - 1];
    }
    memcpy(&known->each[0], address, sizeof(*address));
    known->sizes[0] = sizeof(*address);
}

/* A server that swallows everything: its queue of new connections is full. */
typedef struct hole {
    int fd, guests[4];
} hole;

static void dig_hole(hole *hole) {
    struct sockaddr_in address;
    hole->fd = open_tcp(0, &address);
    for (int i = 0; i < 4; i++) {
        hole->guests[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (connect(hole->guests[i], (const struct sockaddr *)&address, sizeof(address)) != 0)
            CHECK_EQUAL(errno, EINPROGRESS);
    }
    prepend_address(&address);
}

static void fill_hole(hole *hole) {
    close(hole->fd);
    for (int i = 0; i < 4; i++)
        close(hole->guests[i]);
}

static void a_refusal_is_told_without_the_name_of_the_server(void) {
    begin();
    peer_refuse();
    record a = new_record("a");
    send_line(open_connection(), "GET a", &a);
    settle();
    CHECK_TEXT(world.journal, "broken, a unreachable");
    CHECK(strstr(a.cause, the_peer.path) == NULL); /* its users put the name in front */
    CHECK(strstr(a.cause, "refused") != NULL);
    CHECK_EQUAL(a.request.sent_us, 0);
    end();
}

static void a_server_that_is_not_there_is_unreachable(void) {
    begin();
    peer_refuse();
    unlink(the_peer.path);
    record a = new_record("a");
    send_line(open_connection(), "GET a", &a);
    settle();
    CHECK_TEXT(world.journal, "broken, a unreachable");
    end();
}

static void a_tcp_port_without_a_server_is_unreachable(void) {
    begin();
    struct sockaddr_in address;
    int fd = open_tcp(-1, &address);
    prepend_address(&address);
    world.endpoint.known.count = 1;
    record a = new_record("a");
    send_line(open_connection(), "GET a", &a);
    pass_ms(CONNECT_MS);
    CHECK_TEXT(world.journal, "broken, a unreachable");
    close(fd);
    end();
}

static void the_next_address_is_tried_after_a_refusal(void) {
    begin();
    struct sockaddr_in address;
    int fd = open_tcp(-1, &address);
    prepend_address(&address);
    record a = new_record("a");
    send_line(open_connection(), "GET a", &a);
    pass_ms(CONNECT_MS);
    CHECK_TEXT(link_at(0)->heard, "GET a");
    close(fd);
    end();
}

static void a_connection_that_does_not_come_fails_after_the_timeout(void) {
    begin();
    hole hole;
    dig_hole(&hole);
    world.endpoint.known.count = 1;
    record a = new_record("a");
    send_line(open_connection(), "GET a", &a);
    pass_us(CONNECT_MS * 1000 - 1);
    CHECK_TEXT(world.journal, "");
    pass_us(1);
    CHECK_TEXT(world.journal, "broken, a unreachable");
    CHECK(strstr(a.cause, "in time") != NULL);
    fill_hole(&hole);
    end();
}

static void each_address_has_its_share_of_the_timeout(void) {
    begin();
    hole hole;
    dig_hole(&hole);
    record a = new_record("a");
    send_line(open_connection(), "GET a", &a);
    pass_us(CONNECT_MS * 1000 / 2 - 1);
    CHECK_EQUAL(the_peer.link_count, 0);
    pass_us(1);
    CHECK_TEXT(link_at(0)->heard, "GET a");
    fill_hole(&hole);
    end();
}

static void a_connection_can_be_closed_while_it_is_opened(void) {
    begin();
    hole hole;
    dig_hole(&hole);
    record a = new_record("a");
    send_line(open_connection(), "GET a", &a);
    settle();
    close_connection();
    pass_ms(CONNECT_MS * 2);
    CHECK_TEXT(world.journal, "");
    CHECK_EQUAL(the_peer.link_count, 0);
    fill_hole(&hole);
    end();
}

/* -- the login */

static void begin_with_login(const char *user, const char *password, int db, bool must_be_master) {
    begin();
    url *url = &world.endpoint.url;
    text_copy(url->user, sizeof(url->user), user);
    text_copy(url->password, sizeof(url->password), password);
    url->db = db;
    url->must_be_master = must_be_master;
}

static void the_greeting_is_what_the_url_asks_for(void) {
    const struct {
        const char *user, *password;
        int db;
        bool must_be_master;
        const char *heard;
    } logins[] = {
        {"", "secret", 0, false, "AUTH secret"},
        {"ann", "secret", 0, false, "AUTH ann secret"},
        {"", "", 7, false, "SELECT 7"},
        {"", "", 0, true, "ROLE"},
        {"ann", "secret", 7, true, "AUTH ann secret; SELECT 7; ROLE"},
    };
    for (size_t i = 0; i < sizeof(logins) / sizeof(logins[0]); i++) {
        begin_with_login(logins[i].user, logins[i].password, logins[i].db,
                         logins[i].must_be_master);
        connect_peer();
        CHECK_TEXT(link_at(0)->heard, logins[i].heard);
        end();
    }
}

static void nothing_is_sent_before_the_greeting_is_answered(void) {
    begin_with_login("", "secret", 7, true);
    connection *conn = open_connection();
    record a = new_record("a"), b = new_record("b");
    send_line(conn, "GET a", &a);
    settle();
    send_line(conn, "GET b", &b);
    settle();
    const char *const answers[] = {"+OK\r\n", "+OK\r\n", role_master};
    for (int i = 0; i < 3; i++) {
        CHECK_TEXT(link_at(0)->heard, "AUTH secret; SELECT 7; ROLE");
        CHECK(!connection_is_ready(conn));
        CHECK_EQUAL(a.request.sent_us, 0);
        link_say(link_at(0), answers[i]);
        pass_ms(1);
    }
    CHECK(connection_is_ready(conn));
    CHECK_TEXT(link_at(0)->heard, "AUTH secret; SELECT 7; ROLE; GET a; GET b");
    link_say(link_at(0), ":1\r\n:2\r\n");
    settle();
    CHECK_TEXT(world.journal, "a=1, a ok, b=2, b ok");
    end();
}

static void commands_of_the_greeting_are_not_counted(void) {
    begin_with_login("", "secret", 7, false);
    connection *conn = connect_peer();
    CHECK_EQUAL((int64_t)world.command_count, 0);
    send_line(conn, "GET a", NULL);
    link_say(link_at(0), "+OK\r\n+OK\r\n");
    settle();
    CHECK_EQUAL((int64_t)world.command_count, 1);
    end();
}

static void a_request_that_is_abandoned_during_the_greeting_is_never_sent(void) {
    begin_with_login("", "secret", 0, false);
    connection *conn = open_connection();
    record a = new_record("a"), b = new_record("b");
    send_line(conn, "GET a", &a);
    send_line(conn, "GET b", &b);
    settle();
    CHECK(!connection_abandon(&a.request));
    link_say(link_at(0), "+OK\r\n");
    settle();
    CHECK_TEXT(link_at(0)->heard, "AUTH secret; GET b");
    end();
}

static void a_greeting_that_fails_is_told_to_every_request(void) {
    const struct {
        const char *reply, *journal, *cause;
    } failures[] = {
        {"-WRONGPASS invalid username-password pair\r\n", "broken, a refused, b refused",
         "WRONGPASS invalid username-password pair"},
        {"-NOAUTH no\r\n", "broken, a refused, b refused", "NOAUTH no"},
        {"-LOADING Redis is loading\r\n", "broken, a unreachable, b unreachable", "LOADING"},
        {"+OK\r\n-ERR DB index is out of range\r\n", "broken, a invalid, b invalid", "DB index"},
        {"+OK\r\n+WHAT\r\n", "broken, a protocol, b protocol", "unexpected"},
        {"@\r\n", "broken, a protocol, b protocol", "protocol"},
        {"+OK\r\n+OK\r\n*2\r\n$5\r\nslave\r\n:0\r\n", "broken, a unreachable, b unreachable",
         "not the master"},
    };
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        begin_with_login("", "secret", 7, true);
        connection *conn = open_connection();
        record a = new_record("a"), b = new_record("b");
        send_line(conn, "GET a", &a);
        send_line(conn, "GET b", &b);
        settle();
        link_say(link_at(0), failures[i].reply);
        settle();
        CHECK_TEXT(world.journal, failures[i].journal);
        CHECK(strstr(a.cause, failures[i].cause) != NULL);
        CHECK_TEXT(link_at(0)->heard, "AUTH secret; SELECT 7; ROLE");
        CHECK_EQUAL(a.request.sent_us, 0);
        end();
    }
}

static void a_replica_is_good_enough_unless_the_master_is_asked_for(void) {
    begin_with_login("", "", 0, true);
    connect_peer();
    link_say(link_at(0), role_replica);
    settle();
    CHECK_TEXT(world.journal, "broken");
    end();
    begin_with_login("", "", 0, false);
    CHECK(connection_is_ready(connect_peer()));
    end();
}

static void a_plain_ok_does_not_prove_a_master(void) {
    begin_with_login("", "", 0, true);
    connect_peer();
    link_say(link_at(0), "+OK\r\n");
    settle();
    CHECK_TEXT(world.journal, "broken");
    end();
}

static void an_end_during_the_greeting_sends_nothing(void) {
    begin_with_login("", "secret", 0, false);
    record a = new_record("a");
    send_line(open_connection(), "GET a", &a);
    settle();
    link_end(link_at(0));
    settle();
    CHECK_TEXT(world.journal, "broken, a unreachable");
    CHECK_EQUAL(a.request.sent_us, 0);
    end();
}

static void a_surplus_reply_during_the_greeting_breaks_the_connection(void) {
    begin_with_login("", "secret", 0, false);
    record a = new_record("a");
    send_line(open_connection(), "GET a", &a);
    settle();
    link_say(link_at(0), "+OK\r\n:1\r\n");
    settle();
    CHECK(strstr(world.journal, "a=1") == NULL);
    CHECK(a.done_count == 1 && a.status != DLOCK_OK);
    end();
}

static void a_greeting_without_an_answer_stalls(void) {
    begin_with_login("", "secret", 0, false);
    record a = new_record("a");
    send_line(open_connection(), "GET a", &a);
    pass_us(IO_MS * 1000 - 1);
    CHECK_TEXT(world.journal, "");
    pass_us(1);
    CHECK_TEXT(world.journal, "stalled");
    end();
}

/* -- proof that the server serves this connection */

static connection *open_with_proof(record *record) {
    connection *conn = connection_open(
        &world.endpoint, &(connection_owner){.on_broken = note_broken, .needs_proof = true});
    world.conn = conn;
    send_line(conn, "GET a", record);
    settle();
    return conn;
}

static void without_a_login_the_reply_to_a_ping_is_the_proof(void) {
    const char *const replies[] = {"+PONG\r\n", "-NOPERM no permission to run PING\r\n", ":1\r\n"};
    for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
        begin();
        record a = new_record("a");
        connection *conn = open_with_proof(&a);
        CHECK_TEXT(link_at(0)->heard, "PING");
        CHECK(!connection_is_ready(conn));
        link_say(link_at(0), replies[i]);
        settle();
        CHECK_TEXT(link_at(0)->heard, "PING; GET a");
        end();
    }
}

static void a_ping_that_is_refused_for_now_is_no_proof(void) {
    begin();
    record a = new_record("a");
    open_with_proof(&a);
    link_say(link_at(0), "-ERR max number of clients reached\r\n");
    settle();
    CHECK_TEXT(world.journal, "broken, a unreachable");
    CHECK_TEXT(link_at(0)->heard, "PING");
    CHECK(strstr(a.cause, "max number of clients") != NULL);
    end();
}

/* While requests are gathered, nothing is sent yet. */
static void an_error_before_the_first_request_says_why_the_server_refuses(void) {
    for (int needs_proof = 0; needs_proof < 2; needs_proof++) {
        begin();
        record a = new_record("a");
        world.loop->gathering.woken = 100;
        world.conn =
            connection_open(&world.endpoint, &(connection_owner){.on_broken = note_broken,
                                                                 .needs_proof = needs_proof});
        send_line(world.conn, "GET a", &a);
        settle();
        link_say(link_at(0), "-ERR max number of clients reached\r\n");
        settle();
        CHECK_TEXT(link_at(0)->heard, "");
        CHECK_TEXT(world.journal, "broken, a unreachable");
        CHECK(strstr(a.cause, "max number of clients") != NULL);
        end();
    }
}

static void a_login_is_proof_enough(void) {
    begin_with_login("", "secret", 0, false);
    record a = new_record("a");
    open_with_proof(&a);
    link_say(link_at(0), "+OK\r\n");
    settle();
    CHECK_TEXT(link_at(0)->heard, "AUTH secret; GET a");
    end();
}

static void an_end_before_the_proof_sends_nothing(void) {
    begin();
    record a = new_record("a");
    open_with_proof(&a);
    link_end(link_at(0));
    settle();
    CHECK_TEXT(world.journal, "broken, a unreachable");
    CHECK_EQUAL(a.request.sent_us, 0);
    end();
}

int main(void) {
    UNIT_RUN(a_refusal_is_told_without_the_name_of_the_server);
    UNIT_RUN(a_server_that_is_not_there_is_unreachable);
    UNIT_RUN(a_tcp_port_without_a_server_is_unreachable);
    UNIT_RUN(the_next_address_is_tried_after_a_refusal);
    UNIT_RUN(a_connection_that_does_not_come_fails_after_the_timeout);
    UNIT_RUN(each_address_has_its_share_of_the_timeout);
    UNIT_RUN(a_connection_can_be_closed_while_it_is_opened);
    UNIT_RUN(the_greeting_is_what_the_url_asks_for);
    UNIT_RUN(nothing_is_sent_before_the_greeting_is_answered);
    UNIT_RUN(commands_of_the_greeting_are_not_counted);
    UNIT_RUN(a_request_that_is_abandoned_during_the_greeting_is_never_sent);
    UNIT_RUN(a_greeting_that_fails_is_told_to_every_request);
    UNIT_RUN(a_replica_is_good_enough_unless_the_master_is_asked_for);
    UNIT_RUN(a_plain_ok_does_not_prove_a_master);
    UNIT_RUN(an_end_during_the_greeting_sends_nothing);
    UNIT_RUN(a_surplus_reply_during_the_greeting_breaks_the_connection);
    UNIT_RUN(a_greeting_without_an_answer_stalls);
    UNIT_RUN(without_a_login_the_reply_to_a_ping_is_the_proof);
    UNIT_RUN(a_ping_that_is_refused_for_now_is_no_proof);
    UNIT_RUN(an_error_before_the_first_request_says_why_the_server_refuses);
    UNIT_RUN(a_login_is_proof_enough);
    UNIT_RUN(an_end_before_the_proof_sends_nothing);
    return unit_summary();
}
