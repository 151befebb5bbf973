/* SPDX-License-Identifier: BSD-3-Clause */
/* acknowledgement_test.c - many locks, one connection, and one WAIT for all that have come. Each
 * lock writes into the journal what it is told. */
#include "client/net/server_world.h"

#include "deployment/acknowledgement.h"

enum { TIMEOUT_MS = 100 };

#define FEW          "acknowledged in time by 0 of 1 needed replicas"
#define EXTEND(name) "DLOCK.EXTEND " name " me PX 9"

typedef struct lock {
    acknowledgement ack;
    attempt attempt;
    bool starts_again, frees_server;
} lock;

static lock x, y, z;

static void start_lock(lock *lock) {
    lock->attempt.status = DLOCK_OK;
    server_share(the_server);
    acknowledgement_start(&lock->ack, the_server);
}

static void on_done(acknowledgement *ack, ack_result result) {
    lock *lock = container_of(ack, struct lock, ack);
    static const char *const words[] = {
        [ACK_ENOUGH] = "enough", [ACK_NOT_WRITTEN] = "refused", [ACK_TOO_FEW] = "too few"};
    char text[CAUSE_SIZE];
    const char *cause = lock->attempt.cause;
    bool has_cause = result != ACK_ENOUGH;
    CHECK_EQUAL(lock->attempt.status == DLOCK_OK, result == ACK_ENOUGH);
    snprintf(text, sizeof(text), "%s %s%s%s", lock->attempt.name, words[result],
             has_cause ? ": " : "", has_cause ? cause : "");
    note(text);
    text_drop(&lock->attempt.cause);
    bool starts_again = lock->starts_again;
    lock->starts_again = false;
    if (starts_again) start_lock(lock);
    server_free(the_server); /* the share of the lock */
    if (lock->frees_server) free_the_server(NULL);
}

static void make_lock(lock *lock, const char *name) {
    static char token[] = "me";
    int64_t limit_us = world.now_us + 3600 * INT64_C(1000000);
    *lock = (struct lock){.ack = {.attempt = &lock->attempt,
                                  .timeout_ms = TIMEOUT_MS,
                                  .limit_us = limit_us,
                                  .on_done = on_done},
                          .attempt = {.name = name,
                                      .token = token,
                                      .lease_ms = 9,
                                      .operation = DLOCK_ACQUIRING,
                                      .prepared.protocol = &module_protocol,
                                      .terms.min_replicas = 1}};
}

static void begin_locks(void) {
    begin_server();
    make_lock(&x, "x");
    make_lock(&y, "y");
    make_lock(&z, "z");
}

static void check_heard(int index, const char *expected, const char *file, int line) {
    unit_check_text(link_at(index)->heard, expected, file, line, "heard");
    link_at(index)->heard[0] = '\0';
}

#define CHECK_HEARD(index, expected) check_heard(index, expected, __FILE__, __LINE__)

TEST(a_lock_is_written_before_replicas_are_waited_for) {
    start_lock(&x);
    settle();
    CHECK_HEARD(0, EXTEND("x") "; WAIT 1 100");
    say(0, ":1\r\n");
    CHECK_TEXT(world.journal, "");
    say(0, ":2\r\n");
    CHECK_TEXT(world.journal, "x enough");
}

TEST(locks_that_come_meanwhile_share_the_next_round) {
    start_lock(&x);
    settle();
    CHECK_HEARD(0, EXTEND("x") "; WAIT 1 100");
    start_lock(&y);
    start_lock(&z);
    settle();
    CHECK_HEARD(0, "");
    say(0, ":1\r\n:1\r\n");
    CHECK_HEARD(0, EXTEND("y") "; " EXTEND("z") "; WAIT 1 100");
    CHECK_TEXT(world.journal, "x enough");
    say(0, ":1\r\n:1\r\n:0\r\n");
    CHECK_TEXT(world.journal, "x enough, y too few: " FEW ", z too few: " FEW);
    CHECK_EQUAL(the_peer.link_count, 1);
}

TEST(many_locks_take_one_connection_and_two_rounds) {
    enum { MANY = 300 };
    static lock locks[MANY];
    for (size_t i = 0; i < MANY; i++) {
        make_lock(&locks[i], "x");
        start_lock(&locks[i]);
    }
    settle();
    CHECK_HEARD(0, EXTEND("x") "; WAIT 1 100");
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
    CHECK_HEARD(0, EXTEND("x") "; WAIT 1 100; " EXTEND("y") "; " EXTEND("z") "; WAIT 1 300");
    say(0, ":1\r\n:1\r\n:1\r\n");
}

TEST(locks_that_need_more_replicas_wait_for_a_later_round) {
    y.attempt.terms.min_replicas = 5;
    start_lock(&x);
    start_lock(&y);
    start_lock(&z);
    settle();
    say(0, ":1\r\n:1\r\n");
    CHECK_HEARD(0, EXTEND("x") "; WAIT 1 100; " EXTEND("y") "; WAIT 5 100");
    say(0, ":1\r\n:5\r\n");
    CHECK_HEARD(0, EXTEND("z") "; WAIT 1 100");
    say(0, ":1\r\n:1\r\n");
    CHECK_TEXT(world.journal, "x enough, y enough, z enough");
}

TEST(a_lock_that_is_stopped_is_not_told) {
    start_lock(&x);
    start_lock(&y);
    settle();
    acknowledgement_stop(&x.ack);
    acknowledgement_stop(&y.ack);
    acknowledgement_stop(&y.ack);
    server_free(the_server);
    server_free(the_server);
    say(0, ":1\r\n:1\r\n");
    CHECK_HEARD(0, EXTEND("x") "; WAIT 1 100");
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
    CHECK_TEXT(world.journal, "x too few: the server closed the connection");
    CHECK_HEARD(1, EXTEND("y") "; WAIT 1 100");
    say(1, ":1\r\n:1\r\n");
    CHECK_TEXT(world.journal, "x too few: the server closed the connection, y enough");
}

TEST(a_server_that_hangs_ends_the_round) {
    start_both();
    pass_ms(TIMEOUT_MS + IO_MS - 1);
    CHECK_TEXT(world.journal, "");
    pass_ms(1);
    CHECK_TEXT(world.journal, "x too few: no reply of replicas in time");
    CHECK(!link_at(0)->is_open);
    CHECK_HEARD(1, EXTEND("y") "; WAIT 1 100");
    say(1, ":1\r\n:1\r\n");
}

TEST(a_server_that_cannot_be_reached_ends_the_round) {
    peer_refuse();
    start_both();
    CHECK(strstr(world.journal, "x too few: ") != NULL &&
          strstr(world.journal, "y too few: ") != NULL);
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
    CHECK_HEARD(1, EXTEND("y") "; WAIT 1 100");
    say(1, ":1\r\n:1\r\n");
    CHECK_TEXT(world.journal, "x enough, y enough");
}

TEST(a_lock_can_start_again_when_it_is_told) {
    x.starts_again = true;
    start_lock(&x);
    settle();
    say(0, ":1\r\n:1\r\n");
    CHECK_HEARD(0, EXTEND("x") "; WAIT 1 100; " EXTEND("x") "; WAIT 1 100");
    say(0, ":1\r\n:1\r\n");
    CHECK_TEXT(world.journal, "x enough, x enough");
}

TEST(the_last_lock_may_free_the_server) {
    x.frees_server = true;
    start_lock(&x);
    settle();
    say(0, ":1\r\n:1\r\n");
    CHECK(the_server == NULL);
    CHECK_EQUAL(open_links(), 0);
}

TEST(the_last_lock_may_free_the_server_when_the_connection_breaks) {
    x.frees_server = true;
    start_lock(&x);
    settle();
    hang_up(0);
    CHECK(the_server == NULL);
    CHECK_TEXT(world.journal, "x too few: the server closed the connection");
}

TEST(a_lock_that_the_server_refuses_to_write_ends_at_once) {
    static const struct {
        const char *reply, *told;
        dlock_operation operation;
    } rows[] = {
        {":0\r\n", "x refused: it was lost before replicas had it", DLOCK_ACQUIRING},
        {":0\r\n", "x refused: the server says that the token does not hold it", DLOCK_EXTENDING},
        {"-MOVED 1 there:1\r\n", "x refused: MOVED 1 there:1", DLOCK_ACQUIRING},
    };
    EACH_ROW(i, rows) {
        unit_restart();
        x.attempt.operation = rows[i].operation;
        start_lock(&x);
        settle();
        say(0, rows[i].reply);
        CHECK_TEXT(world.journal, rows[i].told);
        say(0, ":1\r\n");
        CHECK_TEXT(world.journal, rows[i].told);
    }
}

TEST(a_lock_has_a_limit_of_its_own) {
    start_lock(&x);
    settle();
    y.ack.limit_us = world.now_us + 5000;
    start_lock(&y);
    pass_ms(5);
    CHECK_TEXT(world.journal, "y too few: no reply of replicas in time");
    say(0, ":1\r\n:1\r\n");
    CHECK_HEARD(0, EXTEND("x") "; WAIT 1 100");
}

int main(void) {
    return unit_main(begin_locks, end_server);
}
