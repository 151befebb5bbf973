/* SPDX-License-Identifier: BSD-3-Clause */
/* routed_doubt_test.c - parked acquires whose server gives no sign of life, requests that may
 * arrive late, and grants that are to be undone. */
#include "routed_world.h"

enum { PROBE_MS = 2000, LONG_WAIT_MS = 600000 };

#define PARKED ACQUIRE " WAIT"

/* Link 0: the command connection. Link 1: the parked acquire. No probe is answered. */
static void park_at_a_silent_server(void) {
    begin_stage();
    the_peer.answer = NULL;
    start_acquire(LONG_WAIT_MS);
    say(0, "$-1\r\n");
    CHECK(strncmp(link_at(1)->heard, PARKED, strlen(PARKED)) == 0);
}

static void a_parked_acquire_stays_while_no_other_server_is_known(void) {
    park_at_a_silent_server();
    pass_ms(PROBE_MS * 10);
    CHECK_EQUAL(stage.done_count, 0);
    CHECK(stage.router.is_doubted);
    CHECK(strstr(link_at(1)->heard, "RELEASE") == NULL && link_at(1)->is_open);
    say(1, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_EQUAL((int64_t)stage.attempt.fence, 7);
    end_stage();
}

static void a_parked_acquire_leaves_for_the_server_that_took_over(void) {
    park_at_a_silent_server();
    stage.known = stage.b;
    CHECK_EQUAL(stage.done_count, 0);
    pass_ms(PROBE_MS + IO_MS);
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    CHECK(stage.attempt.may_hold);
    CHECK_TEXT(stage.attempt.token, TOKEN);
    CHECK(strstr(link_at(1)->heard, "RELEASE") == NULL);
    end_stage();
}

/* -- late arrivals */

/* The acquire is in doubt on link 0; the next attempt, on link 1, was granted. */
static void acquire_at_the_second_try(void) {
    begin_stage();
    start_acquire(WAIT_MS);
    pass_ms(IO_MS);
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    start_acquire(WAIT_MS);
    say(1, ":7\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_HEARD(0, ACQUIRE);
    CHECK_HEARD(1, ACQUIRE);
}

static void a_release_follows_an_acquire_that_may_arrive_late(void) {
    acquire_at_the_second_try();
    stage.attempt.may_hold = true;
    start(DLOCK_RELEASING, 0, IO_MS);
    CHECK_HEARD(1, RELEASE);
    CHECK_HEARD(0, ""); /* served before the other, this one would make the lock look lost */
    say(1, ":1\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_HEARD(0, RELEASE);
    end_stage();
}

static void a_release_that_is_not_answered_follows_too(void) {
    acquire_at_the_second_try();
    stage.attempt.may_hold = true;
    start(DLOCK_RELEASING, 0, IO_MS / 2);
    pass_ms(IO_MS / 2);
    CHECK_DONE(DLOCK_IN_DOUBT, true);
    CHECK_HEARD(0, RELEASE);
    end_stage();
}

static void nothing_follows_a_release_of_an_acquire_without_doubt(void) {
    acquire_at_the_second_try();
    stage.attempt.may_hold = false;
    start(DLOCK_RELEASING, 0, IO_MS);
    say(1, ":1\r\n");
    CHECK_DONE(DLOCK_OK, false);
    CHECK_HEARD(0, "");
    end_stage();
}

static void a_withdrawal_follows_an_acquire_that_may_arrive_late(void) {
    acquire_at_the_second_try();
    withdrawals_add(stage.deployment, NAME, TOKEN, LEASE_MS);
    settle();
    CHECK_HEARD(1, RELEASE);
    say(1, ":0\r\n");
    CHECK_HEARD(0, RELEASE);
    end_stage();
}

/* -- undoing. Link 0: the acquire and the RELEASE; link 1: the withdrawal */

static void be_granted_with_too_few_replicas(void) {
    begin_stage();
    stage.attempt.terms.min_replicas = 2;
    stage.attempt.terms.replica_timeout_ms = 100;
    start_acquire(0);
    CHECK_HEARD(0, ACQUIRE "; WAIT 2 100");
    pass_ms(100);
    say(0, ":7\r\n:1\r\n");
    CHECK_HEARD(0, RELEASE);
    CHECK_EQUAL(stage.done_count, 0);
}

static void check_withdrawn(void) {
    CHECK(!stage.attempt.may_hold);
    CHECK(strcmp(stage.attempt.token, TOKEN) != 0); /* its RELEASE may arrive late */
    CHECK_EQUAL((int64_t)stage.deployment->withdrawals.count, 1);
    CHECK_HEARD(1, RELEASE);
    end_stage();
}

static void an_undo_that_is_not_answered_is_withdrawn(void) {
    be_granted_with_too_few_replicas();
    pass_ms(IO_MS - 1);
    CHECK_EQUAL(stage.done_count, 0);
    pass_ms(1);
    CHECK_DONE(DLOCK_NO_REPLICAS, false);
    check_withdrawn();
}

static void an_undo_that_the_server_refuses_is_withdrawn(void) {
    be_granted_with_too_few_replicas();
    say(0, "-READONLY not any more\r\n");
    CHECK_DONE(DLOCK_NO_REPLICAS, false);
    check_withdrawn();
}

static void an_undo_whose_connection_ends_is_withdrawn(void) {
    be_granted_with_too_few_replicas();
    link_end(link_at(0));
    settle();
    CHECK_DONE(DLOCK_NO_REPLICAS, false);
    check_withdrawn();
}

static void an_undo_that_is_abandoned_is_withdrawn(void) {
    be_granted_with_too_few_replicas();
    deployment_abandon(stage.deployment, &stage.attempt);
    settle();
    CHECK_EQUAL(stage.done_count, 0);
    check_withdrawn();
}

int main(void) {
    UNIT_RUN(an_undo_that_is_not_answered_is_withdrawn);
    UNIT_RUN(an_undo_that_the_server_refuses_is_withdrawn);
    UNIT_RUN(an_undo_whose_connection_ends_is_withdrawn);
    UNIT_RUN(an_undo_that_is_abandoned_is_withdrawn);
    UNIT_RUN(a_parked_acquire_stays_while_no_other_server_is_known);
    UNIT_RUN(a_parked_acquire_leaves_for_the_server_that_took_over);
    UNIT_RUN(a_release_follows_an_acquire_that_may_arrive_late);
    UNIT_RUN(a_release_that_is_not_answered_follows_too);
    UNIT_RUN(nothing_follows_a_release_of_an_acquire_without_doubt);
    UNIT_RUN(a_withdrawal_follows_an_acquire_that_may_arrive_late);
    return unit_summary();
}
