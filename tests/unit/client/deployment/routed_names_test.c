/* SPDX-License-Identifier: BSD-3-Clause */
/* Attempts for several names: one step, one token, one fence. */
#include "routed_world.h"

#define ACQUIRE_ALL "DLOCK.ACQUIREALL 2 lock door me PX 10000"
#define RELEASE_ALL "DLOCK.RELEASEALL 2 lock door me"
#define EXTEND_DOOR "DLOCK.EXTEND door me PX 10000"

static void begin_several(void) {
    begin_stage();
    stage.attempt.name = NAME "\0" OTHER_NAME;
    stage.attempt.name_count = 2;
}

static void begin_release(void) {
    begin_several();
    start(DLOCK_RELEASING, 0, IO_MS);
    CHECK_HEARD(0, RELEASE_ALL);
}

static void begin_extension(void) {
    begin_several();
    start(DLOCK_EXTENDING, 0, IO_MS);
    CHECK_HEARD(0, EXTEND "; " EXTEND_DOOR);
}

TEST(all_names_are_taken_by_one_command) {
    begin_several();
    start_acquire(0);
    CHECK_HEARD(0, ACQUIRE_ALL);
    say(0, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(stage.attempt.fence, 7);
    end_stage();
}

TEST(a_name_that_is_lost_before_replicas_have_it_leaves_the_others_to_be_withdrawn) {
    begin_several();
    need_replicas(1);
    start_acquire(0);
    CHECK_HEARD(0, ACQUIRE_ALL);
    say(0, ":7\r\n");
    CHECK_HEARD(1, EXTEND "; " EXTEND_DOOR "; WAIT 1 100");
    say(1, ":0\r\n:1\r\n:1\r\n");
    CHECK_DONE(DLOCK_NO_REPLICAS, false);
    CHECK_EQUAL(stage.attempt.fate, TOKEN_HELD);
    end_stage();
}

TEST(a_release_that_found_all_names_is_good_and_one_that_found_some_is_a_loss) {
    for (int found = 0; found <= 2; found++) {
        char reply[] = ":0\r\n";
        reply[1] = (char)('0' + found);
        begin_release();
        say(0, reply);
        CHECK_DONE(found == 2 ? DLOCK_OK : DLOCK_LOST, false);
        end_stage();
    }
}

TEST(more_released_locks_than_names_make_no_sense) {
    begin_release();
    say(0, ":3\r\n");
    CHECK_DONE(DLOCK_PROTOCOL, false);
    end_stage();
}

TEST(a_release_that_met_another_type_releases_each_name_alone) {
    begin_release();
    say(0, "-WRONGTYPE no lock\r\n");
    CHECK_DONE(DLOCK_LOST, false);
    settle();
    CHECK_HEARD(0, RELEASE "; DLOCK.RELEASE door me");
    end_stage();
}

TEST(an_extension_extends_each_name) {
    begin_extension();
    say(0, ":1\r\n");
    CHECK_EQUAL(stage.done_count, 0);
    say(0, ":1\r\n");
    CHECK_DONE(DLOCK_OK, false);
    end_stage();
}

TEST(an_extension_of_which_one_name_is_not_held_is_a_loss) {
    static const char *const replies[] = {":0\r\n:1\r\n", ":1\r\n:0\r\n", ":0\r\n:0\r\n"};
    for (size_t i = 0; i < 3; i++) {
        begin_extension();
        say(0, replies[i]);
        CHECK_DONE(DLOCK_LOST, false);
        end_stage();
    }
}

TEST(after_ask_each_extension_follows_an_asking) {
    begin_extension();
    say(0, "-ASK 1 host:1\r\n-ASK 1 host:1\r\n");
    settle();
    CHECK_HEARD(1, "ASKING; " EXTEND "; ASKING; " EXTEND_DOOR);
    say(1, "+OK\r\n:1\r\n+OK\r\n:0\r\n");
    CHECK_DONE(DLOCK_LOST, false);
    end_stage();
}

TEST(a_wait_is_over_by_the_event_with_the_first_name) {
    begin_several();
    start_acquire(WAIT_MS);
    CHECK_HEARD(0, ACQUIRE_ALL);
    say(0, "$-1\r\n");
    open_session(1);
    CHECK_HEARD(0, ACQUIRE_ALL " WAIT 5000 VIA ID");
    say(0, "+QUEUED\r\n");
    say(1, EVENTS("1") GRANTED("1", "9", "0"));
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(stage.attempt.fence, 9);
    end_stage();
}

TEST(a_wait_that_is_given_up_is_withdrawn_with_all_names) {
    begin_several();
    start_acquire(0);
    CHECK_HEARD(0, ACQUIRE_ALL);
    deployment_abandon(stage.deployment, &stage.attempt);
    settle();
    CHECK_HEARD(0, RELEASE_ALL);
    say(0, ":7\r\n:2\r\n");
    end_stage();
}

TEST(a_token_that_holds_some_of_the_names_is_withdrawn_and_another_one_is_used) {
    begin_several();
    stage.attempt.fate = TOKEN_IN_DOUBT; /* an earlier acquire with the token */
    start_acquire(WAIT_MS);
    CHECK_HEARD(0, ACQUIRE_ALL);
    say(0, "$-1\r\n");
    open_session(1);
    CHECK_HEARD(0, ACQUIRE_ALL " WAIT 5000 VIA ID");
    say(0, "-ERR token holds some of these locks, and cannot wait for the others: release\r\n");
    CHECK_DONE(DLOCK_REFUSED, true);
    settle();
    CHECK_HEARD(0, RELEASE_ALL);
    CHECK_EQUAL(stage.attempt.fate, TOKEN_UNHELD);
    CHECK_TEXT(stage.token, TOKEN "~2");
    say(0, ":1\r\n");
    end_stage();
}

TEST(the_loss_of_any_name_is_noted) {
    begin_several();
    stage.tie.is_endless = true;
    stage.attempt.terms.tie = &stage.tie;
    start_acquire(0);
    open_session(0);
    CHECK_HEARD(1, "DLOCK.ACQUIREALL 2 lock door me VIA ID SESSION");
    say(1, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
    say(0, EVENTS("1") "*5\r\n:1\r\n+lost\r\n$4\r\nroof\r\n$2\r\nme\r\n+deleted\r\n");
    CHECK(!stage.tie.is_lost);
    say(0, EVENTS("1") "*5\r\n:2\r\n+lost\r\n$4\r\ndoor\r\n$2\r\nme\r\n+deleted\r\n");
    CHECK(stage.tie.is_lost);
    end_stage();
}

int main(void) {
    return unit_main(NULL, NULL);
}
