/* SPDX-License-Identifier: BSD-3-Clause */
/* hints_test.c - a held lock whose key changes. Link 0: the subscriber. Link 1: the command
 * connection. */
#include "client/deployment/routed_world.h"

#include "lease/hints.h"

#define SUBSCRIBED ":7\r\n*3\r\n+subscribe\r\n+__redis__:invalidate\r\n:1\r\n"
#define HINT       "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n$4\r\nlock\r\n"
#define FREE       "$-1\r\n"
#define HELD_BY(length, token)                                                                     \
    "*2\r\n$7\r\nholders\r\n*2\r\n*2\r\n$5\r\ntoken\r\n$5\r\nother\r\n*2\r\n$"                     \
    "5\r\ntoken\r\n$" length "\r\n" token "\r\n"
#define MINE  HELD_BY("2", "me")
#define OK    "+OK\r\n"
#define PROOF "DLOCK.EXTEND lock me PX 1"

static struct {
    tracking tracking;
    lease lease;
    watched_lock watched;
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
    held.watched = (watched_lock){.lease = &held.lease, .name = NAME};
    held.hinted =
        (hinted_lock){.lease = &held.lease, .watched = &held.watched, .name = NAME, .token = TOKEN};
    hints_begin(&held.hinted, &held.tracking);
}

/* The key was read once, and the token was there. */
static void begin_tracked_hold(void) {
    begin_hold();
    pass_ms(HINTS_AFTER_MS);
    say(0, SUBSCRIBED);
    say(1, OK OK MINE);
    link_at(1)->heard[0] = '\0';
    CHECK_EQUAL(state(), DLOCK_HELD);
}

/* A change is told, and the reply to the read is this. */
static void change(const char *info) {
    char replies[300];
    snprintf(replies, sizeof(replies), OK "%s", info);
    say(0, HINT);
    CHECK_HEARD(1, "CLIENT CACHING YES; DLOCK.INFO lock");
    say(1, replies);
}

static void end_hold(void) {
    hints_end(&held.hinted);
    tracking_close(&held.tracking);
    lease_free(&held.lease);
    end_stage();
}

static void a_lock_that_is_held_for_a_moment_is_not_read(void) {
    begin_hold();
    pass_ms(HINTS_AFTER_MS - 1);
    hints_end(&held.hinted);
    pass_ms(1000);
    CHECK_EQUAL(the_peer.link_count, 0);
    end_hold();
}

static void a_token_among_the_holders_needs_no_proof(void) {
    begin_tracked_hold();
    change(MINE);
    CHECK_HEARD(1, "");
    CHECK_EQUAL(state(), DLOCK_HELD);
    end_hold();
}

static void a_lock_is_lost_when_the_server_proves_it(void) {
    static const char *const infos[] = {FREE, HELD_BY("3", "you")};
    for (size_t i = 0; i < 2; i++) {
        begin_tracked_hold();
        change(infos[i]);
        CHECK_HEARD(1, PROOF);
        CHECK_EQUAL(state(), DLOCK_HELD);
        say(1, ":0\r\n");
        CHECK_EQUAL(state(), DLOCK_GONE);
        CHECK_EQUAL(atomic_load(&held.lease.why), DLOCK_LOST);
        end_hold();
    }
}

static void without_a_proof_the_lock_stays(void) {
    static const char *const replies[] = {":1\r\n", "-READONLY no\r\n", "+what\r\n"};
    for (size_t i = 0; i < 3; i++) {
        begin_tracked_hold();
        change(FREE);
        CHECK_HEARD(1, PROOF);
        say(1, replies[i]);
        CHECK_EQUAL(state(), DLOCK_HELD);
        change(FREE);
        say(1, ":0\r\n");
        CHECK_EQUAL(state(), DLOCK_GONE);
        end_hold();
    }
}

static void a_loss_before_the_first_read_is_found_by_it(void) {
    begin_hold();
    pass_ms(HINTS_AFTER_MS);
    say(0, SUBSCRIBED);
    say(1, OK OK FREE);
    say(1, ":0\r\n");
    CHECK_EQUAL(state(), DLOCK_GONE);
    end_hold();
}

static void a_lock_in_question_is_left_to_the_renewal(void) {
    begin_tracked_hold();
    lease_question(&held.lease, true);
    change(FREE);
    CHECK_HEARD(1, "");
    CHECK_EQUAL(state(), DLOCK_SUSPECT);
    end_hold();
}

static void a_proof_that_comes_after_the_release_changes_nothing(void) {
    begin_tracked_hold();
    change(FREE);
    hints_end(&held.hinted);
    /* The next acquisition of the handle. */
    lease_begin(&held.lease, world.now_us, 600000, world.now_us);
    say(1, ":0\r\n");
    CHECK_EQUAL(state(), DLOCK_HELD);
    end_hold();
}

static void a_lost_lock_is_not_read_for_ever(void) {
    begin_tracked_hold();
    change(FREE);
    CHECK_HEARD(1, PROOF);
    say(1, ":0\r\n");
    change(FREE);
    CHECK_HEARD(1, "");
    say(0, HINT);
    CHECK_HEARD(1, "");
    end_hold();
}

int main(void) {
    UNIT_RUN(a_lock_that_is_held_for_a_moment_is_not_read);
    UNIT_RUN(a_token_among_the_holders_needs_no_proof);
    UNIT_RUN(a_lock_is_lost_when_the_server_proves_it);
    UNIT_RUN(without_a_proof_the_lock_stays);
    UNIT_RUN(a_loss_before_the_first_read_is_found_by_it);
    UNIT_RUN(a_lock_in_question_is_left_to_the_renewal);
    UNIT_RUN(a_proof_that_comes_after_the_release_changes_nothing);
    UNIT_RUN(a_lost_lock_is_not_read_for_ever);
    return unit_summary();
}
