/* SPDX-License-Identifier: BSD-3-Clause */
/* redlock_test.c - an acquire at several servers: what each of them is sent, when a majority has
 * granted the lock, and how a grant that does not count is undone. */
#include "redlock_world.h"

#define ACQUIRE "ACQUIRE lock me 10000 1000010000"
#define RELEASE "RELEASE lock me"
#define FENCE   1000010000

TEST(a_majority_of_yes_is_a_grant) {
    start(DLOCK_ACQUIRING);
    CHECK_SENT(ACQUIRE, "01234");
    world.now_us += 100;
    reply_integer(3, FENCE);
    reply_integer(0, FENCE);
    CHECK_EQUAL(world.done_count, 0);
    reply_integer(4, FENCE);
    check_result(DLOCK_OK, false, "");
    CHECK_EQUAL(world.attempt.fence, FENCE);
    CHECK_EQUAL(world.attempt.asked_us, START_US);
    CHECK_SENT("", "");
}

TEST(the_lease_counts_from_the_earliest_request_of_the_majority) {
    start(DLOCK_ACQUIRING);
    for (size_t i = 0; i < SERVERS; i++)
        world.servers[i].pending->sent_us = START_US + 500 - 100 * (int64_t)i;
    reply_integer(0, FENCE);
    reply_integer(2, FENCE);
    reply_nil(4);
    reply_integer(1, FENCE);
    CHECK_EQUAL(world.attempt.asked_us, START_US + 300);
}

TEST(a_busy_lock_is_undone_where_it_was_granted) {
    start(DLOCK_ACQUIRING);
    skip_sent();
    reply_integer(0, FENCE);
    reply_nil(1);
    reply_nil(2);
    reply_nil(3);
    CHECK_EQUAL(world.done_count, 0); /* the last reply makes the cause complete */
    reply_integer(4, FENCE);
    check_result(DLOCK_BUSY, false, "2 ok, 3 busy");
    CHECK(world.attempt.is_split);
    CHECK_SENT(RELEASE, "04");
    CHECK_EQUAL(world.withdrawn_count, 0);
}

TEST(a_lock_that_another_holds_everywhere_is_no_split_vote) {
    world.attempt.is_split = true; /* the attempt before */
    start(DLOCK_ACQUIRING);
    for (size_t i = 0; i < SERVERS; i++)
        reply_nil(i);
    check_result(DLOCK_BUSY, false, "5 busy");
    CHECK(!world.attempt.is_split);
}

/* Two servers have granted a busy lock. */
static void be_busy(void) {
    start(DLOCK_ACQUIRING);
    for (size_t i = 0; i < 3; i++)
        reply_nil(i);
    reply_integer(3, FENCE);
    reply_integer(4, FENCE);
    check_result(DLOCK_BUSY, false, "2 ok, 3 busy");
}

TEST(an_undo_that_is_answered_is_over) {
    be_busy();
    end_undo(3, &(reply){.kind = REPLY_INTEGER, .integer = 1, .size = 1}, DLOCK_OK);
    end_undo(4, &(reply){.kind = REPLY_INTEGER, .integer = 0, .size = 1}, DLOCK_OK);
    CHECK_EQUAL(world.withdrawn_count, 0);
}

TEST(an_undo_whose_connection_ends_becomes_a_withdrawal) {
    be_busy();
    end_undo(3, NULL, DLOCK_IN_DOUBT);
    CHECK_EQUAL(world.withdrawn_count, 1);
    CHECK_TEXT(world.withdrawn, "me");
    end_undo(4, NULL, DLOCK_UNREACHABLE);
    CHECK_EQUAL(world.withdrawn_count, 2);
}

/* A server that this round did not reach may hold the lock since the earlier attempt. */
TEST(a_token_of_an_earlier_attempt_is_withdrawn_everywhere) {
    world.attempt.fate = TOKEN_HELD;
    be_busy();
    CHECK_EQUAL(world.withdrawn_count, 1);
    CHECK_TEXT(world.withdrawn, "me");
}

TEST(an_undo_that_is_refused_becomes_a_withdrawal) {
    static const char text[] = "READONLY not any more";
    be_busy();
    end_undo(3, &(reply){.kind = REPLY_ERROR, .text = text, .length = strlen(text), .size = 1},
             DLOCK_OK);
    CHECK_EQUAL(world.withdrawn_count, 1);
}

TEST(a_busy_lock_does_not_wait_for_a_silent_server) {
    start(DLOCK_ACQUIRING);
    skip_sent();
    for (size_t i = 0; i < 4; i++)
        reply_nil(i);
    pass_time(world.now_us + ROUND_LINGER_US);
    check_result(DLOCK_BUSY, false, "4 busy, 1 unanswered");
    CHECK_SENT(RELEASE, "4");
    CHECK(world.sent[world.sent_count - 1].is_on_same_conn);
    CHECK_EQUAL(world.withdrawn_count, 0);
}

TEST(the_cause_names_the_servers_that_failed) {
    start(DLOCK_ACQUIRING);
    reply_nil(0);
    reply_nil(1);
    reply_integer(2, FENCE);
    reply_integer(3, FENCE);
    fail_request(4, DLOCK_UNREACHABLE, "Connection refused");
    check_result(DLOCK_NO_QUORUM, true, "2 ok, 2 busy, 1 unreachable: s4: Connection refused");
    unit_restart();
    start(DLOCK_ACQUIRING);
    reply_integer(0, FENCE);
    reply_error(1, "NOAUTH Authentication required.");
    reply_error(2, "NOAUTH Authentication required.");
    reply_error(3, "NOAUTH Authentication required.");
    reply_integer(4, FENCE);
    check_result(DLOCK_REFUSED, false,
                 "2 ok, 3 failed: s1: NOAUTH Authentication required.; s2: NOAUTH Authentication "
                 "required.; s3: NOAUTH Authentication required.");
}

TEST(silent_servers_are_told_behind_the_request) {
    start(DLOCK_ACQUIRING);
    skip_sent();
    reply_integer(0, FENCE);
    reply_integer(1, FENCE);
    pass_time(START_US + IO_MS * 1000 * 3 / 4 - 1);
    CHECK_EQUAL(world.done_count, 0);
    world.servers[4].conn.is_ready = false; /* it breaks, and has not told yet */
    pass_time(world.now_us + 1);
    check_result(DLOCK_NO_QUORUM, true,
                 "2 ok, 3 unanswered: s2: no reply in time; s3: no reply in time; s4: no reply "
                 "in time");
    CHECK_SENT(RELEASE, "01234");
    static const bool is_same[SERVERS] = {false, false, true, true, false};
    for (size_t i = 0; i < SERVERS; i++)
        CHECK(world.sent[world.sent_count - SERVERS + i].is_on_same_conn == is_same[i]);
    CHECK_EQUAL(world.withdrawn_count, 1); /* because of s4 */
}

TEST(a_reply_is_awaited_for_an_io_timeout) {
    world.servers[4].is_connecting = true; /* a connection may take longer */
    start(DLOCK_ACQUIRING);
    world.attempt.limit_us = START_US + 60 * 1000000;
    deployment_abandon(world.redlock, &world.attempt);
    deployment_start(world.redlock, &world.attempt);
    pass_time(START_US + IO_MS * 1500);
    CHECK_EQUAL(world.done_count, 0);
    world.servers[4].pending->sent_us = world.now_us;
    pass_time(START_US + IO_MS * 2500 - 1);
    CHECK_EQUAL(world.done_count, 0);
    pass_time(START_US + IO_MS * 2500);
    CHECK_EQUAL(world.done_count, 1);
    CHECK_EQUAL(world.attempt.status, DLOCK_NO_QUORUM);
}

TEST(a_vote_takes_at_most_half_a_lease) {
    world.attempt.limit_us = START_US + 60 * 1000000;
    world.attempt.operation = DLOCK_ACQUIRING;
    world.attempt.name = "lock";
    world.attempt.lease_ms = LEASE_MS;
    world.attempt.on_done = on_world_done;
    for (size_t i = 0; i < SERVERS; i++)
        world.servers[i].is_connecting = true; /* once sent, there is only an I/O timeout left */
    deployment_start(world.redlock, &world.attempt);
    pass_time(START_US + LEASE_MS * 500 - 1);
    CHECK_EQUAL(world.done_count, 0);
    pass_time(START_US + LEASE_MS * 500);
    CHECK_EQUAL(world.done_count, 1);
}

TEST(a_connection_that_broke_with_the_request_is_withdrawn) {
    start(DLOCK_ACQUIRING);
    skip_sent();
    fail_request(0, DLOCK_IN_DOUBT, "Connection reset by peer");
    for (size_t i = 1; i < 4; i++)
        reply_nil(i);
    fail_request(4, DLOCK_UNREACHABLE, "Connection refused");
    check_result(
        DLOCK_BUSY, false,
        "3 busy, 1 unanswered, 1 unreachable: s0: Connection reset by peer; s4: Connection "
        "refused");
    CHECK_SENT(RELEASE, "0");
    CHECK_EQUAL(world.withdrawn_count, 1);
    CHECK_TEXT(world.withdrawn, "me");
}

TEST(a_reply_that_makes_no_sense_may_be_a_grant) {
    start(DLOCK_ACQUIRING);
    skip_sent();
    reply_integer(0, -5);
    for (size_t i = 1; i < SERVERS; i++)
        reply_nil(i);
    CHECK_SENT(RELEASE, "0");
}

TEST(every_attempt_has_a_token_of_its_own) {
    static const char *const tokens[] = {"me", "me~2", "me~3"};
    for (size_t attempt = 0; attempt < 3; attempt++) {
        start(DLOCK_ACQUIRING);
        CHECK_TEXT(world.attempt.token, tokens[attempt]);
        for (size_t i = 0; i < SERVERS; i++)
            reply_nil(i);
    }
    text_copy(world.token, sizeof(world.token), "other");
    start(DLOCK_ACQUIRING);
    CHECK_TEXT(world.attempt.token, "other");
    deployment_abandon(world.redlock, &world.attempt);
}

TEST(a_server_with_an_open_circuit_is_skipped) {
    world.servers[1].is_skipped = world.servers[2].is_skipped = true;
    start(DLOCK_ACQUIRING);
    CHECK_SENT(ACQUIRE, "034");
    reply_integer(0, FENCE);
    reply_integer(3, FENCE);
    reply_integer(4, FENCE);
    check_result(DLOCK_OK, false, "");
}

TEST(a_skipped_server_is_asked_if_the_others_cannot_decide) {
    world.servers[1].is_skipped = world.servers[2].is_skipped = true;
    start(DLOCK_ACQUIRING);
    skip_sent();
    reply_integer(0, FENCE);
    reply_integer(3, FENCE);
    reply_nil(4);
    CHECK_SENT(ACQUIRE, "12");
    reply_integer(1, FENCE);
    check_result(DLOCK_OK, false, "");
}

TEST(all_are_asked_if_too_few_are_available) {
    for (size_t i = 0; i < 3; i++)
        world.servers[i].is_skipped = true;
    start(DLOCK_ACQUIRING);
    CHECK_SENT(ACQUIRE, "01234");
    deployment_abandon(world.redlock, &world.attempt);
}

TEST(a_grant_still_goes_to_a_server_without_a_connection) {
    world.servers[4].is_connecting = true;
    start(DLOCK_ACQUIRING);
    CHECK_SENT(ACQUIRE, "01234");
    for (size_t i = 0; i < 3; i++)
        reply_integer(i, FENCE);
    check_result(DLOCK_OK, false, "");
    CHECK_SENT(ACQUIRE, "4");
    CHECK(!world.sent[world.sent_count - 1].is_waited_for);
}

TEST(an_abandoned_acquire_is_given_back) {
    world.servers[2].is_connecting = true;
    start(DLOCK_ACQUIRING);
    CHECK_SENT(ACQUIRE, "01234");
    reply_integer(0, FENCE);
    reply_nil(1);
    deployment_abandon(world.redlock, &world.attempt);
    CHECK_SENT(RELEASE, "034");
    CHECK(heap_first(&world.loop.timers) == NULL);
    CHECK_EQUAL(world.done_count, 0);
    CHECK_EQUAL(world.withdrawn_count, 0);
    end_undo(3, NULL, DLOCK_IN_DOUBT);
    CHECK_EQUAL(world.withdrawn_count, 1);
}

TEST(an_abandoned_acquire_that_was_not_sent_needs_nothing) {
    for (size_t i = 0; i < SERVERS; i++)
        world.servers[i].is_connecting = true;
    start(DLOCK_ACQUIRING);
    deployment_abandon(world.redlock, &world.attempt);
    CHECK_SENT("", "");
    CHECK_EQUAL(world.withdrawn_count, 0);
}

TEST(a_shared_claim_says_so_to_every_server_also_when_fences_are_raised) {
    world.attempt.terms.mode = DLOCK_SHARED;
    start(DLOCK_ACQUIRING);
    CHECK_SENT("ACQUIRE lock me 10000 SHARED 1000010000", "01234");
    reply_integer(0, UNIX_US + 10000);
    reply_integer(1, UNIX_US + 20000);
    reply_integer(2, UNIX_US + 30000);
    CHECK_SENT("ACQUIRE lock me 10000 SHARED 1000030000", "01");
    deployment_abandon(world.redlock, &world.attempt);
}

int main(void) {
    return unit_main(make_world, end_world);
}
