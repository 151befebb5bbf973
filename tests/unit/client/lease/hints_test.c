/* SPDX-License-Identifier: BSD-3-Clause */
/* hints_test.c - a held lock whose key changes. Link 0: the session. Link 1: the command
 * connection. */
#include "client/deployment/routed_world.h"

#include "lease/hints.h"

#define WATCH "DLOCK.WATCH lock ID; DLOCK.INFO lock"
#define READ  "DLOCK.INFO lock"
#define FREE  "$-1\r\n"
#define HELD_BY(length, token)                                                                     \
    "*2\r\n$7\r\nholders\r\n*2\r\n*2\r\n$5\r\ntoken\r\n$5\r\nother\r\n*2\r\n$"                     \
    "5\r\ntoken\r\n$" length "\r\n" token "\r\n"
#define MINE  HELD_BY("2", "me")
#define OK    "+OK\r\n"
#define PROOF "DLOCK.EXTEND lock me PX 1"

static struct {
    tracking tracking;
    lease lease;
    hinted_lock hinted;
} held;

static dlock_state state(void) {
    return lease_state(&held.lease, world.now_us);
}

static void begin_hold(void) {
    begin_stage();
    memset(&held, 0, sizeof(held));
    tracking_init(&held.tracking, stage.deployment);
    lease_init(&held.lease, &(lease_rule){.lease_ms = 600000});
    lease_begin(&held.lease, world.now_us, 600000, world.now_us);
    held.hinted = (hinted_lock){.lease = &held.lease, .name = NAME, .token = TOKEN};
    hints_begin(&held.hinted, &held.tracking);
}

/* The key was read once, and the token was there. */
static void begin_tracked_hold(void) {
    begin_hold();
    pass_ms(HINTS_AFTER_MS);
    open_session(0);
    CHECK_HEARD(1, WATCH);
    say(1, OK MINE);
    CHECK_EQUAL(state(), DLOCK_STATE_HELD);
}

/* The session tells that this token has the lock. */
static void tell_change(const char *token) {
    static int number;
    char event[200];
    number++;
    snprintf(event, sizeof(event),
             EVENTS("1") "*4\r\n:%d\r\n+changed\r\n$4\r\nlock\r\n$%zu\r\n%s\r\n", number,
             strlen(token), token);
    say(0, event);
}

/* A change is told, and the reply to the read is this. */
static void change(const char *info) {
    tell_change("other");
    CHECK_HEARD(1, READ);
    say(1, info);
}

static void end_hold(void) {
    hints_end(&held.hinted);
    lease_free(&held.lease);
    end_stage();
}

TEST(a_lock_that_is_held_for_a_moment_is_not_read) {
    begin_hold();
    pass_ms(HINTS_AFTER_MS - 1);
    hints_end(&held.hinted);
    pass_ms(1000);
    CHECK_EQUAL(the_peer.link_count, 0);
    end_hold();
}

TEST(a_token_among_the_holders_needs_no_proof) {
    begin_tracked_hold();
    change(MINE);
    CHECK_HEARD(1, "");
    CHECK_EQUAL(state(), DLOCK_STATE_HELD);
    end_hold();
}

TEST(an_event_that_the_token_has_the_lock_needs_no_read) {
    begin_tracked_hold();
    tell_change(TOKEN);
    CHECK_HEARD(1, "");
    end_hold();
}

TEST(a_lock_is_lost_when_the_server_proves_it) {
    static const char *const infos[] = {FREE, HELD_BY("3", "you")};
    for (size_t i = 0; i < 2; i++) {
        begin_tracked_hold();
        change(infos[i]);
        CHECK_HEARD(1, PROOF);
        CHECK_EQUAL(state(), DLOCK_STATE_HELD);
        say(1, ":0\r\n");
        CHECK_EQUAL(state(), DLOCK_STATE_LOST);
        CHECK_EQUAL(atomic_load(&held.lease.why), DLOCK_LOST);
        end_hold();
    }
}

TEST(without_a_proof_the_lock_stays) {
    static const char *const replies[] = {":1\r\n", "-READONLY no\r\n", "+what\r\n"};
    for (size_t i = 0; i < 3; i++) {
        begin_tracked_hold();
        change(FREE);
        CHECK_HEARD(1, PROOF);
        say(1, replies[i]);
        CHECK_EQUAL(state(), DLOCK_STATE_HELD);
        change(FREE);
        say(1, ":0\r\n");
        CHECK_EQUAL(state(), DLOCK_STATE_LOST);
        end_hold();
    }
}

TEST(a_loss_before_the_first_read_is_found_by_it) {
    begin_hold();
    pass_ms(HINTS_AFTER_MS);
    open_session(0);
    say(1, OK FREE);
    say(1, ":0\r\n");
    CHECK_EQUAL(state(), DLOCK_STATE_LOST);
    end_hold();
}

TEST(a_lock_in_question_is_left_to_the_renewal) {
    begin_tracked_hold();
    lease_question(&held.lease, true);
    change(FREE);
    CHECK_HEARD(1, "");
    CHECK_EQUAL(state(), DLOCK_STATE_SUSPECT);
    end_hold();
}

TEST(a_proof_that_comes_after_the_release_changes_nothing) {
    begin_tracked_hold();
    change(FREE);
    hints_end(&held.hinted);
    /* The next acquisition of the handle. */
    lease_begin(&held.lease, world.now_us, 600000, world.now_us);
    say(1, ":0\r\n");
    CHECK_EQUAL(state(), DLOCK_STATE_HELD);
    end_hold();
}

TEST(a_lost_lock_is_not_read_for_ever) {
    begin_tracked_hold();
    change(FREE);
    CHECK_HEARD(1, PROOF);
    say(1, ":0\r\n");
    CHECK_HEARD(1, "DLOCK.UNWATCH lock ID");
    tell_change("other");
    CHECK_HEARD(1, "");
    end_hold();
}

int main(void) {
    return unit_main(NULL, NULL);
}
