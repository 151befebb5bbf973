/* SPDX-License-Identifier: BSD-3-Clause */
/* acknowledgement_test.c - many locks, one connection, and one WAIT for all that have come. Each
 * lock writes into the journal what it is told. */
#include "client/net/server_world.h"

#include "deployment/acknowledgement.h"

enum { TIMEOUT_MS = 100 };

typedef struct lock {
    acknowledgement ack;
    request written;
    const char *label;
    bool starts_again, frees_server;
} lock;

static lock x, y, z;

static void on_turn(acknowledgement *ack, connection *conn) {
    lock *lock = container_of(ack, struct lock, ack);
    command extend = {0};
    command_add_words(&extend, COMMAND_WORDS("EXTEND", lock->label));
    connection_send(conn, &extend, 1, &lock->written);
}

static void start_lock(lock *lock) {
    server_share(the_server);
    CHECK(acknowledgement_start(&lock->ack, the_server));
}

static void on_done(acknowledgement *ack, const reply *reply, const char *cause) {
    lock *lock = container_of(ack, struct lock, ack);
    char text[CAUSE_SIZE];
    if (reply != NULL)
        snprintf(text, sizeof(text), "%s=%d", lock->label, (int)reply->integer);
    else
        snprintf(text, sizeof(text), "%s: %s", lock->label, cause);
    note(text);
    connection_abandon(&lock->written);
    bool starts_again = lock->starts_again;
    lock->starts_again = false;
    if (starts_again) start_lock(lock);
    server_free(the_server); /* the share of the lock */
    if (lock->frees_server) free_the_server(NULL);
}

static lock new_lock(const char *label, uint32_t min_replicas) {
    return (lock){.ack = {.min_replicas = min_replicas,
                          .timeout_ms = TIMEOUT_MS,
                          .on_turn = on_turn,
                          .on_done = on_done},
                  .label = label};
}

static void begin_locks(void) {
    begin_server();
    x = new_lock("x", 1);
    y = new_lock("y", 1);
    z = new_lock("z", 1);
}

static void check_heard(int index, const char *expected, const char *file, int line) {
    unit_check_text(link_at(index)->heard, expected, file, line, "heard");
    link_at(index)->heard[0] = '\0';
}

#define CHECK_HEARD(index, expected) check_heard(index, expected, __FILE__, __LINE__)

TEST(a_lock_is_written_before_replicas_are_waited_for) {
    start_lock(&x);
    settle();
    CHECK_HEARD(0, "EXTEND x; WAIT 1 100");
    say(0, ":1\r\n");
    CHECK_TEXT(world.journal, "");
    say(0, ":2\r\n");
    CHECK_TEXT(world.journal, "x=2");
}

TEST(locks_that_come_meanwhile_share_the_next_round) {
    start_lock(&x);
    settle();
    CHECK_HEARD(0, "EXTEND x; WAIT 1 100");
    start_lock(&y);
    start_lock(&z);
    settle();
    CHECK_HEARD(0, "");
    say(0, ":1\r\n:1\r\n");
    CHECK_HEARD(0, "EXTEND y; EXTEND z; WAIT 1 100");
    CHECK_TEXT(world.journal, "x=1");
    say(0, ":1\r\n:1\r\n:0\r\n");
    CHECK_TEXT(world.journal, "x=1, y=0, z=0");
    CHECK_EQUAL(the_peer.link_count, 1);
}

TEST(many_locks_take_one_connection_and_two_rounds) {
    enum { MANY = 300 };
    static lock locks[MANY];
    for (size_t i = 0; i < MANY; i++) {
        locks[i] = new_lock("x", 1);
        start_lock(&locks[i]);
    }
    settle();
    CHECK_HEARD(0, "EXTEND x; WAIT 1 100");
    say(0, ":1\r\n:1\r\n");
    CHECK_EQUAL(world.command_count, MANY + 2);
    for (size_t i = 0; i < MANY; i++)
        say(0, ":1\r\n");
    CHECK_EQUAL(the_peer.link_count, 1);
    CHECK(strstr(world.journal, ":") == NULL);
}

TEST(the_longest_timeout_counts) {
    y.ack.timeout_ms = 300;
    start_lock(&x);
    start_lock(&y);
    start_lock(&z);
    settle();
    say(0, ":1\r\n:1\r\n");
    CHECK_HEARD(0, "EXTEND x; WAIT 1 100; EXTEND y; EXTEND z; WAIT 1 300");
    say(0, ":1\r\n:1\r\n:1\r\n");
}

TEST(locks_that_need_more_replicas_wait_for_a_later_round) {
    y.ack.min_replicas = 5;
    start_lock(&x);
    start_lock(&y);
    start_lock(&z);
    settle();
    say(0, ":1\r\n:1\r\n");
    CHECK_HEARD(0, "EXTEND x; WAIT 1 100; EXTEND y; WAIT 5 100");
    say(0, ":1\r\n:1\r\n");
    CHECK_HEARD(0, "EXTEND z; WAIT 1 100");
    say(0, ":1\r\n:1\r\n");
    CHECK_TEXT(world.journal, "x=1, y=1, z=1");
}

TEST(a_lock_that_is_stopped_is_not_told) {
    start_lock(&x);
    start_lock(&y);
    settle();
    acknowledgement_stop(&x.ack);
    acknowledgement_stop(&y.ack);
    connection_abandon(&x.written);
    acknowledgement_stop(&y.ack);
    server_free(the_server);
    server_free(the_server);
    say(0, ":1\r\n:1\r\n");
    CHECK_HEARD(0, "EXTEND x; WAIT 1 100");
    CHECK_TEXT(world.journal, "");
}

static void start_both(void) {
    start_lock(&x);
    start_lock(&y);
    settle();
}

TEST(a_lost_connection_ends_the_round_and_the_next_one_has_another) {
    start_both();
    hang_up(0);
    CHECK_TEXT(world.journal, "x: the server closed the connection");
    CHECK_HEARD(1, "EXTEND y; WAIT 1 100");
    say(1, ":1\r\n:1\r\n");
    CHECK_TEXT(world.journal, "x: the server closed the connection, y=1");
}

TEST(a_server_that_hangs_ends_the_round) {
    start_both();
    pass_ms(TIMEOUT_MS + IO_MS - 1);
    CHECK_TEXT(world.journal, "");
    pass_ms(1);
    CHECK_TEXT(world.journal, "x: no reply of replicas in time");
    CHECK(!link_at(0)->is_open);
    CHECK_HEARD(1, "EXTEND y; WAIT 1 100");
    say(1, ":1\r\n:1\r\n");
}

TEST(a_server_that_cannot_be_reached_ends_the_round) {
    peer_refuse();
    start_both();
    CHECK(strstr(world.journal, "x: ") != NULL && strstr(world.journal, "y: ") != NULL);
}

TEST(an_idle_connection_that_the_server_has_closed_is_replaced) {
    start_lock(&x);
    settle();
    say(0, ":1\r\n:1\r\n");
    CHECK_EQUAL(open_links(), 1);
    pass_ms(60000);
    CHECK_EQUAL(open_links(), 1);
    link_end(link_at(0));
    start_lock(&y);
    settle();
    CHECK_HEARD(1, "EXTEND y; WAIT 1 100");
    say(1, ":1\r\n:1\r\n");
    CHECK_TEXT(world.journal, "x=1, y=1");
}

TEST(a_lock_can_start_again_when_it_is_told) {
    x.starts_again = true;
    start_lock(&x);
    settle();
    say(0, ":1\r\n:1\r\n");
    CHECK_HEARD(0, "EXTEND x; WAIT 1 100; EXTEND x; WAIT 1 100");
    say(0, ":1\r\n:1\r\n");
    CHECK_TEXT(world.journal, "x=1, x=1");
}

TEST(the_last_lock_may_free_the_server) {
    x.frees_server = true;
    start_lock(&x);
    settle();
    say(0, ":1\r\n:1\r\n");
    CHECK(the_server == NULL);
    CHECK_EQUAL(open_links(), 0);
}

int main(void) {
    return unit_main(begin_locks, end_server);
}
