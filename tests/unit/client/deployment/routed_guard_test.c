/* SPDX-License-Identifier: BSD-3-Clause */
/* routed_guard_test.c - guarded commands at one server: sent once, whatever happens. */
#include "routed_world.h"

#define GUARDED "DLOCK.GUARD lock me INCR data"

static char text[16];
static dlock_reply value;
static const guarded_words increment = {
    .count = 2, .words = (const char *const[]){"INCR", "data"}, .lengths = (const size_t[]){4, 4}};

static void begin_guarded(void) {
    begin_stage();
    dlock_reply_init(&value, text, sizeof(text));
    static const attempt_guarded guarded = {&increment, &value};
    stage.attempt.guarded = &guarded;
    start(0, 0, CONNECT_MS + IO_MS);
}

TEST(the_reply_is_that_of_the_command) {
    CHECK_HEARD(0, GUARDED);
    say(0, ":5\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(value.integer, 5);
    CHECK_EQUAL(the_peer.link_count, 1);
}

TEST(a_lock_that_is_lost_is_told_so) {
    say(0, "-NOTHELD nothing was run\r\n");
    CHECK_DONE(DLOCK_LOST, false);
}

TEST(a_redirect_is_followed) {
    CHECK_HEARD(0, GUARDED);
    say(0, "-ASK 3999 127.0.0.1:6381\r\n");
    CHECK_HEARD(1, "ASKING; " GUARDED);
    say(1, "+OK\r\n:6\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(value.integer, 6);
}

TEST(a_server_that_is_not_ready_has_not_run_it_so_another_may) {
    CHECK_HEARD(0, GUARDED);
    stage.known = stage.b;
    say(0, "-READONLY You can't write against a read only replica.\r\n");
    CHECK_HEARD(1, GUARDED);
    say(1, ":6\r\n");
    CHECK_DONE(DLOCK_OK, false);
}

TEST(a_reply_that_does_not_come_leaves_it_in_doubt) {
    CHECK_HEARD(0, GUARDED);
    stage.known = stage.b;
    pass_ms(IO_MS);
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    CHECK_HEARD(0, "");
    CHECK_EQUAL(the_peer.link_count, 1);
    CHECK_EQUAL(stage.attempt.fate, TOKEN_UNHELD);
}

TEST(a_connection_that_ends_before_the_reply_leaves_it_in_doubt) {
    stage.known = stage.b;
    hang_up(0);
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    CHECK_EQUAL(the_peer.link_count, 1);
}

TEST(an_unreadable_reply_leaves_it_in_doubt) {
    say(0, "?\r\n");
    CHECK_DONE(DLOCK_IN_DOUBT, false);
}

TEST(a_command_that_is_given_up_is_in_doubt_once_it_was_sent) {
    deployment_abandon(stage.deployment, &stage.attempt);
    CHECK_EQUAL(stage.attempt.status, DLOCK_IN_DOUBT);
    settle();
    CHECK_HEARD(0, GUARDED); /* and no RELEASE behind */
}

int main(void) {
    return unit_main(begin_guarded, end_stage);
}
