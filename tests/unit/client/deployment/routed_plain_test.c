/* SPDX-License-Identifier: BSD-3-Clause */
/* routed_plain_test.c - one server without the module: a script is sent by its hash, and as a text
 * where the server does not know it, or where nobody reads the reply. */
#include "routed_world.h"

#include "protocol/lock_commands.h"

#define SET     "SET lock me NX PX 10000"
#define UNKNOWN "-NOSCRIPT No matching script. Please use EVAL.\r\n"

static void begin_plain(void) {
    begin_stage();
    stage.deployment->protocol = &plain_protocol;
    CHECK(attempt_prepare(&stage.attempt, stage.deployment));
}

/* The nth connection has heard one more command, which begins so. */
static void check_begins(int index, const char *expected) {
    char *heard = link_at(index)->heard;
    CHECK_BYTES(heard, strlen(expected), expected, strlen(expected));
    heard[0] = '\0';
}

TEST(an_acquire_is_one_command) {
    start_acquire(0);
    CHECK_HEARD(0, SET);
    say(0, "+OK\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(stage.attempt.fence, 0);
}

TEST(a_server_that_does_not_know_the_script_gets_its_text) {
    start(DLOCK_RELEASING, 0, IO_MS);
    check_begins(0, "EVALSHA ");
    say(0, UNKNOWN);
    CHECK_EQUAL(stage.done_count, 0);
    check_begins(0, "EVAL if ");
    say(0, ":1\r\n");
    CHECK_DONE(DLOCK_OK, false);
}

TEST(a_server_that_knows_no_script_is_asked_no_third_time) {
    start(DLOCK_EXTENDING, 0, IO_MS);
    say(0, UNKNOWN);
    say(0, UNKNOWN);
    CHECK_DONE(DLOCK_PROTOCOL, false);
}

/* Link 0: the acquire that may arrive late. Link 1: the release of the next one. */
TEST(a_release_that_nobody_reads_the_reply_of_has_the_text) {
    start_acquire(WAIT_MS);
    CHECK_HEARD(0, SET);
    pass_ms(IO_MS);
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    stage.attempt.fate = TOKEN_IN_DOUBT;
    start(DLOCK_RELEASING, 0, IO_MS);
    say(1, "+PONG\r\n");
    check_begins(1, "PING; EVALSHA ");
    say(1, ":1\r\n");
    CHECK_DONE(DLOCK_OK, false);
    check_begins(0, "EVAL if ");
}

TEST(a_grant_that_too_few_replicas_have_is_undone_by_text) {
    need_replicas(1);
    start_acquire(0);
    CHECK_HEARD(0, SET);
    say(0, "+OK\r\n");
    check_begins(1, "EVAL if "); /* EXTEND, and WAIT behind */
    say(1, ":1\r\n:0\r\n");
    check_begins(0, "EVAL if ");
    say(0, ":1\r\n");
    CHECK_DONE(DLOCK_NO_REPLICAS, false);
}

TEST(an_acquire_that_may_have_been_granted_before_looks_for_its_token) {
    stage.attempt.fate = TOKEN_IN_DOUBT;
    start_acquire(0);
    check_begins(0, "EVALSHA ");
    say(0, ":1\r\n");
    CHECK_DONE(DLOCK_OK, false);
}

int main(void) {
    return unit_main(begin_plain, end_stage);
}
