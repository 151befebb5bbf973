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

TEST(a_refusal_is_told_without_the_name_of_the_server) {
    peer_refuse();
    send_gets(open_connection(), 1);
    CHECK_TEXT(world.journal, "broken, a unreachable");
    CHECK(strstr(a.cause, the_peer.path) == NULL); /* its users put the name in front */
    CHECK(strstr(a.cause, "refused") != NULL);
    CHECK_EQUAL(a.request.sent_us, 0);
}

TEST(a_server_that_is_not_there_is_unreachable) {
    peer_refuse();
    unlink(the_peer.path);
    send_gets(open_connection(), 1);
    CHECK_TEXT(world.journal, "broken, a unreachable");
}

TEST(a_tcp_port_without_a_server_is_unreachable) {
    struct sockaddr_in address;
    int fd = open_tcp(-1, &address);
    prepend_address(&address);
    world.endpoint.known.count = 1;
    send_line(open_connection(), "GET a", &a);
    pass_ms(CONNECT_MS);
    CHECK_TEXT(world.journal, "broken, a unreachable");
    close(fd);
}

TEST(a_family_that_the_machine_does_not_have_is_no_lack_of_memory) {
    prepend_address(&(struct sockaddr_in){.sin_family = 200});
    world.endpoint.known.count = 1;
    send_line(open_connection(), "GET a", &a);
    pass_ms(CONNECT_MS);
    CHECK_TEXT(world.journal, "broken, a unreachable");
    CHECK(strstr(a.cause, "Address family not supported") != NULL);
}

TEST(the_next_address_is_tried_after_a_refusal) {
    struct sockaddr_in address;
    int fd = open_tcp(-1, &address);
    prepend_address(&address);
    send_line(open_connection(), "GET a", &a);
    pass_ms(CONNECT_MS);
    CHECK_TEXT(link_at(0)->heard, "GET a");
    close(fd);
}

TEST(a_connection_that_does_not_come_fails_after_the_timeout) {
    hole hole;
    dig_hole(&hole);
    world.endpoint.known.count = 1;
    send_line(open_connection(), "GET a", &a);
    pass_us(CONNECT_MS * 1000 - 1);
    CHECK_TEXT(world.journal, "");
    pass_us(1);
    CHECK_TEXT(world.journal, "broken, a unreachable");
    CHECK(strstr(a.cause, "in time") != NULL);
    fill_hole(&hole);
}

TEST(each_address_has_its_share_of_the_timeout) {
    hole hole;
    dig_hole(&hole);
    send_line(open_connection(), "GET a", &a);
    pass_us(CONNECT_MS * 1000 / 2 - 1);
    CHECK_EQUAL(the_peer.link_count, 0);
    pass_us(1);
    CHECK_TEXT(link_at(0)->heard, "GET a");
    fill_hole(&hole);
}

TEST(each_address_has_its_share_of_the_timeout_with_its_handshake) {
    char wrong[CAUSE_SIZE];
    tls_context *context;
    if (tls_context_new(&context, &(tls_files){0}, wrong, sizeof(wrong)) != DLOCK_OK) {
        CHECK(strstr(wrong, "without TLS") != NULL);
        return;
    }
    addresses *known = &world.endpoint.known;
    world.endpoint.options.tls = context;
    world.endpoint.url.is_tls = true;
    known->each[known->count] = known->each[0]; /* the same peer, which does not answer */
    known->sizes[known->count++] = known->sizes[0];
    send_line(open_connection(), "GET a", &a);
    pass_us(CONNECT_MS * 1000 / 2 - 1);
    CHECK_EQUAL(the_peer.link_count, 1);
    pass_us(1);
    CHECK(!link_at(0)->is_open && link_at(1)->is_open);
    pass_us(CONNECT_MS * 1000 / 2);
    CHECK_TEXT(world.journal, "broken, a unreachable");
    CHECK_TEXT(a.cause, "no answer to the TLS handshake in time");
    tls_context_free(context);
}

TEST(a_connection_can_be_closed_while_it_is_opened) {
    hole hole;
    dig_hole(&hole);
    send_gets(open_connection(), 1);
    close_connection();
    pass_ms(CONNECT_MS * 2);
    CHECK_TEXT(world.journal, "");
    CHECK_EQUAL(the_peer.link_count, 0);
    fill_hole(&hole);
}

/* The peer accepts nothing, and its queue of new connections is full: guests are in it. */
static int fill_queue(int guests[], int max) {
    struct sockaddr_un address = peer_address();
    int count = 0;
    CHECK(loop_watch(world.loop, &the_peer.io, 0) && listen(the_peer.io.fd, 0) == 0);
    for (; count < max; count++) {
        guests[count] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (connect(guests[count], (struct sockaddr *)&address, sizeof(address)) != 0) break;
    }
    CHECK_EQUAL(errno, EAGAIN);
    return count + 1;
}

TEST(a_unix_socket_with_too_many_new_connections_is_tried_again) {
    for (int accepts = 0; accepts < 2; accepts++) {
        unit_restart();
        int guests[4], count = fill_queue(guests, 4);
        send_line(open_connection(), "GET a", &a);
        pass_ms(CONNECT_MS / 2);
        CHECK_TEXT(world.journal, "");
        if (accepts) CHECK(loop_watch(world.loop, &the_peer.io, EPOLLIN));
        pass_ms(CONNECT_MS / 2);
        CHECK_TEXT(world.journal, accepts ? "" : "broken, a unreachable");
        if (accepts) CHECK_TEXT(link_at(count - 1)->heard, "GET a");
        while (count > 0)
            close(guests[--count]);
    }
}

/* -- the login */

static void set_login(const char *user, const char *password, int db, bool must_be_master) {
    url *url = &world.endpoint.url;
    text_copy(url->user, sizeof(url->user), user);
    text_copy(url->password, sizeof(url->password), password);
    url->db = db;
    url->must_be_master = must_be_master;
}

TEST(the_greeting_is_what_the_url_asks_for) {
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
    EACH_ROW(i, logins) {
        unit_restart();
        set_login(logins[i].user, logins[i].password, logins[i].db, logins[i].must_be_master);
        connect_peer();
        CHECK_TEXT(link_at(0)->heard, logins[i].heard);
    }
}

TEST(nothing_is_sent_before_the_greeting_is_answered) {
    set_login("", "secret", 7, true);
    connection *conn = send_gets(open_connection(), 1);
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
    say(0, ":1\r\n:2\r\n");
    CHECK_TEXT(world.journal, "a=1, a ok, b=2, b ok");
}

TEST(commands_of_the_greeting_are_not_counted) {
    set_login("", "secret", 7, false);
    connection *conn = connect_peer();
    CHECK_EQUAL(world.command_count, 0);
    send_line(conn, "GET a", NULL);
    say(0, "+OK\r\n+OK\r\n");
    CHECK_EQUAL(world.command_count, 1);
}

TEST(a_request_that_is_abandoned_during_the_greeting_is_never_sent) {
    set_login("", "secret", 0, false);
    send_gets(open_connection(), 2);
    CHECK(!connection_abandon(&a.request));
    say(0, "+OK\r\n");
    CHECK_TEXT(link_at(0)->heard, "AUTH secret; GET b");
}

TEST(a_connection_whose_only_request_is_abandoned_stays) {
    set_login("", "secret", 0, false);
    connection *conn = open_connection();
    send_line(conn, "GET a", &a); /* nothing of the greeting was sent yet */
    CHECK(!connection_abandon(&a.request));
    settle();
    say(0, "+OK\r\n");
    settle();
    CHECK(connection_is_ready(conn));
    CHECK_TEXT(link_at(0)->heard, "AUTH secret");
    CHECK_TEXT(world.journal, "");
}

TEST(a_greeting_that_fails_is_told_to_every_request) {
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
    EACH_ROW(i, failures) {
        unit_restart();
        set_login("", "secret", 7, true);
        send_gets(open_connection(), 2);
        say(0, failures[i].reply);
        CHECK_TEXT(world.journal, failures[i].journal);
        CHECK(strstr(a.cause, failures[i].cause) != NULL);
        CHECK_TEXT(link_at(0)->heard, "AUTH secret; SELECT 7; ROLE");
        CHECK_EQUAL(a.request.sent_us, 0);
    }
}

TEST(a_replica_is_good_enough_unless_the_master_is_asked_for) {
    set_login("", "", 0, true);
    connect_peer();
    say(0, role_replica);
    CHECK_TEXT(world.journal, "broken");
    unit_restart();
    set_login("", "", 0, false);
    CHECK(connection_is_ready(connect_peer()));
}

TEST(a_plain_ok_does_not_prove_a_master) {
    set_login("", "", 0, true);
    connect_peer();
    say(0, "+OK\r\n");
    CHECK_TEXT(world.journal, "broken");
}

TEST(an_end_during_the_greeting_sends_nothing) {
    set_login("", "secret", 0, false);
    send_gets(open_connection(), 1);
    hang_up(0);
    CHECK_TEXT(world.journal, "broken, a unreachable");
    CHECK_EQUAL(a.request.sent_us, 0);
}

TEST(a_surplus_reply_during_the_greeting_breaks_the_connection) {
    set_login("", "secret", 0, false);
    send_gets(open_connection(), 1);
    say(0, "+OK\r\n:1\r\n");
    CHECK(strstr(world.journal, "a=1") == NULL);
    CHECK(a.done_count == 1 && a.status != DLOCK_OK);
}

/* Also if the owner does not want to know of stalls. */
TEST(a_greeting_without_an_answer_ends_the_connection) {
    set_login("", "secret", 0, false);
    world.conn = connection_open(&world.endpoint, &(connection_owner){.on_broken = note_broken});
    send_line(world.conn, "GET a", &a);
    pass_us(IO_MS * 1000 - 1);
    CHECK_TEXT(world.journal, "");
    pass_us(1);
    CHECK_TEXT(world.journal, "broken, a unreachable");
    CHECK_TEXT(a.cause, "no answer to the login or PING in time");
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

TEST(without_a_login_the_reply_to_a_ping_is_the_proof) {
    const char *const replies[] = {"+PONG\r\n", "-NOPERM no permission to run PING\r\n", ":1\r\n"};
    EACH_ROW(i, replies) {
        unit_restart();
        connection *conn = open_with_proof(&a);
        CHECK_TEXT(link_at(0)->heard, "PING");
        CHECK(!connection_is_ready(conn));
        say(0, replies[i]);
        CHECK_TEXT(link_at(0)->heard, "PING; GET a");
    }
}

TEST(a_ping_that_is_refused_for_now_is_no_proof) {
    open_with_proof(&a);
    say(0, "-ERR max number of clients reached\r\n");
    CHECK_TEXT(world.journal, "broken, a unreachable");
    CHECK_TEXT(link_at(0)->heard, "PING");
    CHECK(strstr(a.cause, "max number of clients") != NULL);
}

/* While requests are gathered, nothing is sent yet. */
TEST(an_error_before_the_first_request_says_why_the_server_refuses) {
    for (int needs_proof = 0; needs_proof < 2; needs_proof++) {
        unit_restart();
        world.loop->gathering.woken = 100;
        world.conn =
            connection_open(&world.endpoint, &(connection_owner){.on_broken = note_broken,
                                                                 .needs_proof = needs_proof});
        send_line(world.conn, "GET a", &a);
        settle();
        say(0, "-ERR max number of clients reached\r\n");
        CHECK_TEXT(link_at(0)->heard, "");
        CHECK_TEXT(world.journal, "broken, a unreachable");
        CHECK(strstr(a.cause, "max number of clients") != NULL);
    }
}

TEST(a_login_is_proof_enough) {
    set_login("", "secret", 0, false);
    open_with_proof(&a);
    say(0, "+OK\r\n");
    CHECK_TEXT(link_at(0)->heard, "AUTH secret; GET a");
}

TEST(an_end_before_the_proof_sends_nothing) {
    open_with_proof(&a);
    hang_up(0);
    CHECK_TEXT(world.journal, "broken, a unreachable");
    CHECK_EQUAL(a.request.sent_us, 0);
}

int main(void) {
    return unit_main(begin, end);
}
