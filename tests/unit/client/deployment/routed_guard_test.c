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
    stage.attempt.guarded.words = &increment;
    stage.attempt.guarded.reply = &value;
    start(0, 0, CONNECT_MS + IO_MS);
}

static void the_reply_is_that_of_the_command(void) {
    begin_guarded();
    CHECK_HEARD(0, GUARDED);
    say(0, ":5\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(value.integer, 5);
    CHECK_EQUAL(the_peer.link_count, 1);
    end_stage();
}

static void a_lock_that_is_lost_is_told_so(void) {
    begin_guarded();
    say(0, "-NOTHELD nothing was run\r\n");
    CHECK_DONE(DLOCK_LOST, false);
    end_stage();
}

static void a_redirect_is_followed(void) {
    begin_guarded();
    CHECK_HEARD(0, GUARDED);
    say(0, "-ASK 3999 127.0.0.1:6381\r\n");
    CHECK_HEARD(1, "ASKING; " GUARDED);
    say(1, "+OK\r\n:6\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(value.integer, 6);
    end_stage();
}

static void a_server_that_is_not_ready_has_not_run_it_so_another_may(void) {
    begin_guarded();
    CHECK_HEARD(0, GUARDED);
    stage.known = stage.b;
    say(0, "-READONLY You can't write against a read only replica.\r\n");
    CHECK_HEARD(1, GUARDED);
    say(1, ":6\r\n");
    CHECK_DONE(DLOCK_OK, false);
    end_stage();
}

static void a_reply_that_does_not_come_leaves_it_in_doubt(void) {
    begin_guarded();
    CHECK_HEARD(0, GUARDED);
    stage.known = stage.b;
    pass_ms(IO_MS);
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    CHECK_HEARD(0, "");
    CHECK_EQUAL(the_peer.link_count, 1);
    CHECK(!stage.attempt.may_hold);
    end_stage();
}

static void a_connection_that_ends_before_the_reply_leaves_it_in_doubt(void) {
    begin_guarded();
    stage.known = stage.b;
    link_end(link_at(0));
    settle();
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    CHECK_EQUAL(the_peer.link_count, 1);
    end_stage();
}

static void an_unreadable_reply_leaves_it_in_doubt(void) {
    begin_guarded();
    say(0, "?\r\n");
    CHECK_DONE(DLOCK_IN_DOUBT, false);
    end_stage();
}

static void a_command_that_is_given_up_is_in_doubt_once_it_was_sent(void) {
    begin_guarded();
    deployment_abandon(stage.deployment, &stage.attempt);
    CHECK_EQUAL(stage.attempt.status, DLOCK_IN_DOUBT);
    settle();
    CHECK_HEARD(0, GUARDED); /* and no RELEASE behind */
    end_stage();
}

int main(void) {
    UNIT_RUN(the_reply_is_that_of_the_command);
    UNIT_RUN(a_lock_that_is_lost_is_told_so);
    UNIT_RUN(a_redirect_is_followed);
    UNIT_RUN(a_server_that_is_not_ready_has_not_run_it_so_another_may);
    UNIT_RUN(a_reply_that_does_not_come_leaves_it_in_doubt);
    UNIT_RUN(a_connection_that_ends_before_the_reply_leaves_it_in_doubt);
    UNIT_RUN(an_unreadable_reply_leaves_it_in_doubt);
    UNIT_RUN(a_command_that_is_given_up_is_in_doubt_once_it_was_sent);
    return unit_summary();
}
