/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_watch_test.c - a held lock whose key changes. Link 0: the session. Link 1: the command
 * connection. */
#include "client/deployment/routed_world.h"

#include "lease/name_watch.h"

#define WATCH "DLOCK.WATCH lock ID"
#define PROOF "DLOCK.EXTEND lock me PX 1"
#define OK    "+OK\r\n"

static struct {
    lease lease;
    name_watch watch;
} held;

static dlock_state state(void) {
    return lease_state(&held.lease, world.now_us);
}

static void begin_hold(void) {
    begin_stage();
    memset(&held, 0, sizeof(held));
    lease_init(&held.lease, &(lease_rule){.lease_ms = 600000});
    lease_begin(&held.lease, world.now_us, 600000, world.now_us);
    lock_watch_begin(&held.watch, stage.deployment, &held.lease, NAME, TOKEN);
}

static void begin_watched_hold(void) {
    begin_hold();
    pass_ms(LOCK_WATCH_AFTER_MS);
    open_session(0);
    CHECK_HEARD(1, WATCH);
    say(1, OK);
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

/* A change is told, and the server is asked for a proof. */
static void change(void) {
    tell_change("other");
    CHECK_HEARD(1, PROOF);
    CHECK_EQUAL(state(), DLOCK_STATE_HELD);
}

static void end_hold(void) {
    name_watch_end(&held.watch);
    lease_free(&held.lease);
    end_stage();
}

TEST(a_lock_that_is_held_for_a_moment_costs_nothing) {
    begin_hold();
    pass_ms(LOCK_WATCH_AFTER_MS - 1);
    name_watch_end(&held.watch);
    pass_ms(1000);
    CHECK_EQUAL(the_peer.link_count, 0);
    end_hold();
}

TEST(an_event_that_the_token_has_the_lock_needs_no_proof) {
    begin_watched_hold();
    tell_change(TOKEN);
    CHECK_HEARD(1, "");
    end_hold();
}

TEST(a_lock_is_lost_when_the_server_proves_it) {
    begin_watched_hold();
    change();
    say(1, ":0\r\n");
    CHECK_EQUAL(state(), DLOCK_STATE_LOST);
    CHECK_EQUAL(atomic_load(&held.lease.why), DLOCK_LOST);
    end_hold();
}

TEST(an_event_about_another_of_several_holders_is_no_loss) {
    begin_watched_hold();
    for (int i = 0; i < 3; i++) {
        change();
        say(1, ":1\r\n");
        CHECK_EQUAL(state(), DLOCK_STATE_HELD);
    }
    change();
    say(1, ":0\r\n");
    CHECK_EQUAL(state(), DLOCK_STATE_LOST);
    end_hold();
}

/* A replica does not know. The watch begins again: the master may be another server by now. */
TEST(without_a_proof_the_lock_stays) {
    begin_watched_hold();
    change();
    say(1, "-READONLY no\r\n");
    CHECK_EQUAL(state(), DLOCK_STATE_HELD);
    pass_ms(100);
    CHECK_HEARD(1, WATCH);
    say(1, OK);
    change();
    say(1, "+what\r\n");
    CHECK_EQUAL(state(), DLOCK_STATE_HELD);
    end_hold();
}

TEST(without_permission_for_a_session_a_lock_is_not_watched) {
    begin_hold();
    pass_ms(LOCK_WATCH_AFTER_MS);
    say(0, "-NOPERM no\r\n");
    CHECK(!link_at(0)->is_open);
    pass_ms(20000);
    CHECK_EQUAL(the_peer.link_count, 1);
    CHECK_EQUAL(state(), DLOCK_STATE_HELD);
    end_hold();
}

TEST(a_lock_is_not_watched_after_an_error_that_lasts) {
    begin_watched_hold();
    change();
    say(1, "-NOPERM no\r\n");
    pass_ms(SESSION_MS / 3);
    CHECK_HEARD(1, "");
    CHECK_EQUAL(state(), DLOCK_STATE_HELD);
    end_hold();
}

TEST(a_loss_that_is_told_before_the_watch_is_answered_counts) {
    begin_hold();
    pass_ms(LOCK_WATCH_AFTER_MS);
    open_session(0);
    CHECK_HEARD(1, WATCH);
    tell_change("other");
    CHECK_HEARD(1, "");
    say(1, OK);
    CHECK_HEARD(1, PROOF);
    say(1, ":0\r\n");
    CHECK_EQUAL(state(), DLOCK_STATE_LOST);
    end_hold();
}

TEST(a_proof_that_comes_after_the_release_changes_nothing) {
    begin_watched_hold();
    change();
    name_watch_end(&held.watch);
    /* The next acquisition of the handle. */
    lease_begin(&held.lease, world.now_us, 600000, world.now_us);
    say(1, ":0\r\n");
    CHECK_EQUAL(state(), DLOCK_STATE_HELD);
    end_hold();
}

TEST(a_lost_lock_is_not_watched_for_ever) {
    begin_watched_hold();
    change();
    say(1, ":0\r\n");
    CHECK_HEARD(1, "DLOCK.UNWATCH lock ID");
    tell_change("other");
    CHECK_HEARD(1, "");
    end_hold();
}

int main(void) {
    return unit_main(NULL, NULL);
}
