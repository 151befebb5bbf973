/* SPDX-License-Identifier: BSD-3-Clause */
/* slots_test.c - names in several slots: "door" has a lower slot than "lock". Both are at the one
 * server. */
#include "routed_world.h"

#include "deployment/router.h"

#define ACQUIRE_DOOR "DLOCK.ACQUIRE door me PX 10000"
#define EXTEND_DOOR  "DLOCK.EXTEND door me PX 10000"
#define RELEASE_DOOR "DLOCK.RELEASE door me"

static void begin_names(const char *names, uint8_t count) {
    begin_stage();
    attempt_free(&stage.attempt);
    stage.deployment->table = &slots_table;
    stage.attempt.name = names;
    stage.attempt.name_count = count;
    CHECK(attempt_prepare(&stage.attempt, stage.deployment));
}

static void begin_slots(void) {
    begin_names(NAME "\0" OTHER_NAME, 2);
}

/* Up to where the door is held, and the lock is awaited in its queue. */
static void hold_door_and_queue(void) {
    begin_slots();
    start_acquire(WAIT_MS);
    say(0, ":7\r\n");
    say(0, "$-1\r\n");
    open_session(1);
    CHECK_HEARD(0, ACQUIRE_DOOR "; " ACQUIRE "; " ACQUIRE " WAIT 5000 VIA ID");
    say(0, "+QUEUED\r\n");
}

TEST(slots_are_counted) {
    CHECK_EQUAL(slots_count(&(attempt){.name = "a"}), 1);
    CHECK_EQUAL(slots_count(&(attempt){.name = "a\0b\0c", .name_count = 3}), 3);
    CHECK_EQUAL(slots_count(&(attempt){.name = "{x}a\0b\0{x}c", .name_count = 3}), 2);
    CHECK_EQUAL(slots_count(&(attempt){.name = "{x}a\0{x}b", .name_count = 2}), 1);
}

TEST(the_lowest_slot_is_taken_first_and_the_first_name_has_the_fence) {
    begin_slots();
    start_acquire(0);
    CHECK_HEARD(0, ACQUIRE_DOOR);
    int64_t asked_us = world.now_us;
    pass_ms(20);
    say(0, ":7\r\n");
    CHECK_EQUAL(stage.done_count, 0);
    CHECK_HEARD(0, ACQUIRE);
    say(0, ":9\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL(stage.attempt.fence, 9);
    CHECK_EQUAL(stage.attempt.asked_us, asked_us);        /* the lease of the door ends first */
    deployment_abandon(stage.deployment, &stage.attempt); /* nothing is under way */
    settle();
    CHECK_HEARD(0, "");
    end_stage();
}

TEST(a_part_that_is_busy_gives_the_others_back) {
    begin_slots();
    start_acquire(0);
    say(0, ":7\r\n");
    CHECK_HEARD(0, ACQUIRE_DOOR "; " ACQUIRE);
    say(0, "$-1\r\n");
    CHECK_DONE(DLOCK_BUSY, false);
    CHECK_HEARD(0, RELEASE_DOOR);
    CHECK_TEXT(stage.token, TOKEN "~2"); /* the RELEASE may come late */
    say(0, ":1\r\n");
    end_stage();
}

TEST(a_part_in_doubt_is_given_back_with_the_others) {
    begin_slots();
    start_acquire(0);
    say(0, ":7\r\n");
    CHECK_HEARD(0, ACQUIRE_DOOR "; " ACQUIRE);
    pass_ms(IO_MS);
    settle();
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    CHECK_EQUAL(stage.attempt.fate, TOKEN_UNHELD);
    say(1, "+PONG\r\n"); /* the connection without a reply is not used for more */
    CHECK_HEARD(1, "PING; " RELEASE "; " RELEASE_DOOR);
    say(1, ":0\r\n:1\r\n");
    CHECK_HEARD(0, RELEASE "; " RELEASE_DOOR); /* behind the ACQUIRE */
    CHECK_EQUAL(stage.deployment->withdrawals.count, 0);
    end_stage();
}

TEST(an_abandoned_acquire_gives_back_what_it_has) {
    hold_door_and_queue();
    deployment_abandon(stage.deployment, &stage.attempt);
    CHECK_EQUAL(stage.attempt.status, DLOCK_CANCELED);
    settle();
    CHECK_HEARD(0, RELEASE "; " RELEASE_DOOR);
    say(0, ":0\r\n:1\r\n");
    deployment_abandon(stage.deployment, &stage.attempt); /* once more: nothing */
    settle();
    CHECK_HEARD(0, "");
    CHECK_EQUAL(stage.done_count, 0);
    end_stage();
}

TEST(a_held_part_is_extended_while_the_next_one_is_awaited) {
    hold_door_and_queue();
    pass_ms(LEASE_MS / 3 + 1);
    settle();
    CHECK_HEARD(0, EXTEND_DOOR);
    int64_t asked_us = world.now_us;
    say(0, ":1\r\n");
    CHECK_EQUAL(stage.done_count, 0);
    say(1, EVENTS("1") GRANTED("1", "9", "0"));
    CHECK_DONE(DLOCK_OK, false);
    CHECK(stage.attempt.asked_us <= asked_us && stage.attempt.asked_us > 0);
    pass_ms(LEASE_MS / 3 + 1);
    settle();
    CHECK_HEARD(0, ""); /* from here on that is up to the holder */
    end_stage();
}

TEST(a_held_part_that_is_lost_meanwhile_gives_all_back) {
    hold_door_and_queue();
    pass_ms(LEASE_MS / 3 + 1);
    settle();
    CHECK_HEARD(0, EXTEND_DOOR);
    say(0, ":0\r\n");
    CHECK_DONE(DLOCK_BUSY, true);
    CHECK_HEARD(0, RELEASE);
    say(0, ":0\r\n");
    end_stage();
}

TEST(a_held_part_that_has_lost_one_of_its_names_gives_back_the_others) {
    begin_names(NAME "\0" OTHER_NAME "\0{door}x", 3);
    start_acquire(WAIT_MS);
    say(0, ":7\r\n");
    say(0, "$-1\r\n");
    open_session(1);
    CHECK_HEARD(0, "DLOCK.ACQUIREALL 2 door {door}x me PX 10000; " ACQUIRE "; " ACQUIRE
                   " WAIT 5000 VIA ID");
    say(0, "+QUEUED\r\n");
    pass_ms(LEASE_MS / 3 + 1);
    settle();
    CHECK_HEARD(0, EXTEND_DOOR "; DLOCK.EXTEND {door}x me PX 10000");
    say(0, ":0\r\n:1\r\n");
    CHECK_DONE(DLOCK_BUSY, true);
    CHECK_HEARD(0, RELEASE "; DLOCK.RELEASEALL 2 door {door}x me");
    say(0, ":0\r\n:1\r\n");
    end_stage();
}

TEST(an_acquire_in_doubt_begins_anew) {
    begin_slots();
    stage.attempt.fate = TOKEN_IN_DOUBT;
    start_acquire(0);
    CHECK_HEARD(0, RELEASE_DOOR "; " RELEASE "; DLOCK.ACQUIRE door me~2 PX 10000");
    say(0, ":1\r\n:1\r\n$-1\r\n");
    CHECK_DONE(DLOCK_BUSY, false);
    CHECK_EQUAL(stage.attempt.fate, TOKEN_UNHELD);
    settle();
    CHECK_HEARD(0, ""); /* no server may hold anything for the new token */
    end_stage();
}

TEST(all_parts_are_extended_at_once_and_a_loss_counts_most) {
    static const char *const replies[] = {":1\r\n:1\r\n", ":1\r\n:0\r\n", ":0\r\n:1\r\n",
                                          "-LOADING\r\n:0\r\n", ":1\r\n-LOADING x\r\n"};
    static const dlock_status results[] = {DLOCK_OK, DLOCK_LOST, DLOCK_LOST, DLOCK_LOST,
                                           DLOCK_REFUSED};
    EACH_ROW(i, results) {
        begin_slots();
        start(DLOCK_EXTENDING, 0, IO_MS);
        CHECK_HEARD(0, EXTEND_DOOR "; " EXTEND);
        say(0, replies[i]);
        CHECK_DONE(results[i], results[i] == DLOCK_REFUSED);
        CHECK(results[i] != DLOCK_OK || stage.attempt.asked_us > 0);
        end_stage();
    }
}

TEST(a_release_is_repeated_for_the_parts_that_it_did_not_reach) {
    begin_slots();
    start(DLOCK_RELEASING, 0, IO_MS);
    CHECK_HEARD(0, RELEASE_DOOR "; " RELEASE);
    say(0, ":1\r\n-LOADING x\r\n");
    CHECK_DONE(DLOCK_REFUSED, true);
    start(DLOCK_RELEASING, 0, IO_MS);
    CHECK_HEARD(0, RELEASE);
    say(0, ":1\r\n");
    CHECK_DONE(DLOCK_OK, false);
    start(DLOCK_RELEASING, 0, IO_MS); /* all of it is over: from the beginning */
    CHECK_HEARD(0, RELEASE_DOOR "; " RELEASE);
    say(0, ":0\r\n:0\r\n");
    CHECK_DONE(DLOCK_LOST, false);
    end_stage();
}

TEST(a_release_of_which_one_part_was_lost_is_a_loss) {
    begin_slots();
    start(DLOCK_RELEASING, 0, IO_MS);
    CHECK_HEARD(0, RELEASE_DOOR "; " RELEASE);
    say(0, ":0\r\n:1\r\n");
    CHECK_DONE(DLOCK_LOST, false);
    end_stage();
}

int main(void) {
    return unit_main(NULL, NULL);
}
