/* SPDX-License-Identifier: BSD-3-Clause */
/* redlock_holder_test.c - extensions and releases at several servers, and how a renewal heals. */
#include "redlock_world.h"

#define EXTEND      "EXTEND lock me 10000"
#define RELEASE     "RELEASE lock me"
#define HEAL        "ACQUIRE lock me 10000 4711"
#define HEAL_SHARED "ACQUIRE lock me 10000 SHARED 4711"

static void start_renewal(void) {
    world.attempt.is_background = true;
    world.attempt.fence = 4711;
    start(DLOCK_EXTENDING);
    skip_sent();
}

/* -- extend */

TEST(a_majority_of_yes_is_an_extension) {
    start(DLOCK_EXTENDING);
    CHECK_SENT(EXTEND, "01234");
    reply_integer(0, 0);
    reply_integer(1, 1);
    reply_integer(2, 1);
    reply_integer(3, 1);
    check_result(DLOCK_OK, false, "");
    CHECK_EQUAL(world.attempt.asked_us, START_US);
    CHECK_SENT("", ""); /* only a renewal heals */
}

TEST(an_open_circuit_does_not_keep_an_extension_away) {
    world.servers[0].is_skipped = true;
    start(DLOCK_EXTENDING);
    CHECK_SENT(EXTEND, "01234");
    deployment_abandon(world.redlock, &world.attempt);
    CHECK_SENT("", "");
}

TEST(a_majority_that_does_not_hold_the_lock_is_a_loss) {
    start_renewal();
    for (size_t i = 0; i < 3; i++)
        reply_integer(i, 0);
    reply_integer(3, 1);
    reply_integer(4, 1);
    check_result(DLOCK_LOST, false, "2 ok, 3 not held");
    CHECK_SENT("", "");
}

TEST(too_few_replies_are_no_loss) {
    start_renewal();
    reply_integer(0, 0);
    reply_integer(1, 0);
    reply_integer(2, 1);
    fail_request(3, DLOCK_UNREACHABLE, "Connection refused");
    fail_request(4, DLOCK_IN_DOUBT, "Connection reset by peer");
    check_result(DLOCK_NO_QUORUM, true,
                 "1 ok, 2 not held, 1 unanswered, 1 unreachable: s3: Connection refused; s4: "
                 "Connection reset by peer");
    CHECK_SENT("", "");
    CHECK_EQUAL(world.withdrawn_count, 0);
}

TEST(a_renewal_takes_the_lock_again_where_it_was_forgotten) {
    start_renewal();
    reply_integer(4, 0);
    reply_integer(1, 1);
    reply_integer(2, 1);
    reply_integer(3, 1);
    CHECK_EQUAL(world.done_count, 0); /* the last reply may tell of another one */
    reply_integer(0, 0);
    check_result(DLOCK_OK, false, "");
    CHECK_SENT(HEAL, "04");
    CHECK_EQUAL(world.attempt.fence, 4711);
}

/* Half an I/O timeout, or a fiftieth of the lease. */
TEST(a_renewal_does_not_wait_long_for_the_rest) {
    static const uint32_t leases_ms[] = {LEASE_MS, 3000, 100};
    static const int64_t lingers_us[] = {IO_MS * 500, 60000, ROUND_LINGER_US};
    for (size_t i = 0; i < 3; i++) {
        unit_restart();
        world.attempt.is_background = true;
        start_for(DLOCK_EXTENDING, leases_ms[i]);
        skip_sent();
        reply_integer(0, 0);
        for (size_t server = 1; server < 4; server++)
            reply_integer(server, 1);
        pass_time(START_US + lingers_us[i] - 1);
        CHECK_EQUAL(world.done_count, 0);
        pass_time(START_US + lingers_us[i]);
        check_result(DLOCK_OK, false, "");
        CHECK_EQUAL((world.sent_count - world.seen_count), 1); /* healed: s0 */
    }
}

TEST(a_shared_lock_is_healed_in_its_mode) {
    world.attempt.terms.mode = DLOCK_SHARED;
    start_renewal();
    reply_integer(0, 0);
    for (size_t i = 1; i < SERVERS; i++)
        reply_integer(i, 1);
    check_result(DLOCK_OK, false, "");
    CHECK_SENT(HEAL_SHARED, "0");
}

TEST(a_healed_server_is_no_vote) {
    start_renewal();
    for (size_t i = 0; i < 2; i++)
        reply_integer(i, 1);
    for (size_t i = 2; i < 4; i++)
        reply_integer(i, 0);
    pass_time(START_US + IO_MS * 1000);
    CHECK_EQUAL(world.attempt.status, DLOCK_NO_QUORUM);
    CHECK_SENT("", "");
}

TEST(an_extension_after_half_of_the_lease_is_of_no_use) {
    world.attempt.operation = DLOCK_EXTENDING;
    world.attempt.name = "lock";
    world.attempt.lease_ms = 100;
    world.attempt.limit_us = START_US + 1000000;
    world.attempt.on_done = on_world_done;
    deployment_start(world.redlock, &world.attempt);
    pass_time(START_US + 49999);
    CHECK_EQUAL(world.done_count, 0);
    pass_time(START_US + 50000);
    CHECK_EQUAL(world.done_count, 1);
}

/* -- release */

/* Served first, it would make the vote of the server a no. */
TEST(a_release_follows_overdue_requests_once_the_votes_are_counted) {
    for (int is_abandoned = 0; is_abandoned < 2; is_abandoned++) {
        unit_restart();
        world.servers[3].is_overdue = true;
        start(DLOCK_RELEASING);
        CHECK_SENT(RELEASE, "01234");
        CHECK_EQUAL(world.sent_at_on_sent, SERVERS);
        for (size_t i = 0; i < 3 && !is_abandoned; i++)
            reply_integer(i, 1);
        if (is_abandoned) deployment_abandon(world.redlock, &world.attempt);
        CHECK_SENT(RELEASE, "3");
        CHECK(world.sent[world.sent_count - 1].is_behind);
    }
}

TEST(a_release_goes_to_all) {
    world.servers[2].is_skipped = true;
    start(DLOCK_RELEASING);
    CHECK_SENT(RELEASE, "01234");
    CHECK_EQUAL(world.on_sent_count, 1);
    CHECK_EQUAL(world.sent_at_on_sent, SERVERS);
    for (size_t i = 0; i < 3; i++)
        reply_integer(i, 1);
    check_result(DLOCK_OK, false, "");
    CHECK_SENT("", "");
}

TEST(a_release_still_goes_to_a_server_without_a_connection) {
    world.servers[3].is_connecting = world.servers[4].is_connecting = true;
    start(DLOCK_RELEASING);
    skip_sent();
    for (size_t i = 0; i < 3; i++)
        reply_integer(i, 1);
    check_result(DLOCK_OK, false, "");
    CHECK_SENT(RELEASE, "34");
}

TEST(a_release_goes_on_until_a_server_that_granted_the_lock_has_heard_of_it) {
    for (size_t granted = 3; granted <= SERVERS; granted++) {
        unit_restart();
        start(DLOCK_ACQUIRING);
        for (size_t i = 0; i < SERVERS; i++) {
            if (i < SERVERS - granted)
                fail_request(i, DLOCK_UNREACHABLE, "gone");
            else if (world.done_count == 0)
                reply_integer(i, 7);
        }
        check_result(DLOCK_OK, false, "");
        start(DLOCK_RELEASING);
        fail_request(0, DLOCK_UNREACHABLE, "gone");
        for (size_t i = 1; world.done_count == 0; i++)
            reply_integer(i, 1);
        check_result(DLOCK_OK, false, "");
        CHECK_EQUAL(world.withdrawn_count, granted == SERVERS);
    }
}

TEST(a_release_goes_on_until_a_healed_server_has_heard_of_it) {
    world.attempt.is_background = true;
    start(DLOCK_EXTENDING);
    reply_integer(0, 0);
    for (size_t i = 1; i < SERVERS; i++)
        reply_integer(i, 1);
    check_result(DLOCK_OK, false, "");
    world.attempt.is_background = false;
    start(DLOCK_RELEASING);
    fail_request(0, DLOCK_UNREACHABLE, "gone");
    for (size_t i = 1; world.done_count == 0; i++)
        reply_integer(i, 1);
    CHECK_EQUAL(world.withdrawn_count, 1);
}

static void have_yes_of_majority(int64_t reply) {
    for (size_t i = 0; world.done_count == 0; i++)
        if (world.servers[i].pending != NULL) reply_integer(i, reply);
    check_result(DLOCK_OK, false, "");
}

TEST(a_release_does_not_go_on_for_a_server_whose_connection_is_there) {
    start(DLOCK_ACQUIRING);
    have_yes_of_majority(7);
    world.servers[4].is_held_up = true;
    start(DLOCK_RELEASING);
    skip_sent();
    have_yes_of_majority(1);
    CHECK_SENT(RELEASE, "4");
    CHECK_EQUAL(world.withdrawn_count, 0);
}

/* Their commands are queued one behind the other, or are gone with the connection. */
TEST(a_release_does_not_go_on_for_a_server_that_no_acquire_has_reached) {
    world.servers[4].is_connecting = true;
    start(DLOCK_ACQUIRING);
    have_yes_of_majority(7);
    for (int is_renewal = 0; is_renewal < 2; is_renewal++) {
        world.attempt.is_background = is_renewal;
        start(DLOCK_EXTENDING);
        for (size_t i = 0; i < 4 && world.servers[i].pending != NULL; i++)
            reply_integer(i, 1);
        pass_time(world.now_us + IO_MS * 1000);
        check_result(DLOCK_OK, false, "");
    }
    world.attempt.is_background = false;
    start(DLOCK_RELEASING);
    have_yes_of_majority(1);
    CHECK_EQUAL(world.withdrawn_count, 0);
}

/* The ACQUIRE was sent behind the greeting of the new connection; nobody waited for its reply. */
TEST(a_release_goes_on_for_a_server_that_was_connected_after_the_majority_had_granted) {
    world.servers[4].is_connecting = true;
    start(DLOCK_ACQUIRING);
    have_yes_of_majority(7);
    world.servers[4].base.endpoint.ready_count++;
    start(DLOCK_RELEASING);
    fail_request(4, DLOCK_UNREACHABLE, "gone");
    have_yes_of_majority(1);
    CHECK_EQUAL(world.withdrawn_count, 1);
}

TEST(a_release_does_not_go_on_for_a_late_server_that_has_heard_of_it) {
    world.servers[4].is_connecting = true;
    start(DLOCK_ACQUIRING);
    have_yes_of_majority(7);
    world.servers[4].base.endpoint.ready_count++;
    world.servers[4].is_connecting = false;
    start(DLOCK_RELEASING);
    reply_integer(4, 1);
    have_yes_of_majority(1);
    CHECK_EQUAL(world.withdrawn_count, 0);
}

/* Another attempt has taken the lock, so this one does not know which servers have granted it. */
TEST(a_release_of_a_lock_that_was_handed_on_goes_on_for_a_server_that_is_away) {
    start(DLOCK_ACQUIRING);
    have_yes_of_majority(7);
    start(DLOCK_RELEASING);
    for (size_t i = 0; i < SERVERS && world.done_count == 0; i++)
        reply_integer(i, 1);
    check_result(DLOCK_OK, false, "");
    text_copy(world.token, sizeof(world.token), "another");
    world.attempt.fate = TOKEN_HELD;
    start(DLOCK_RELEASING);
    fail_request(4, DLOCK_UNREACHABLE, "gone");
    for (size_t i = 0; world.done_count == 0; i++)
        reply_integer(i, 1);
    CHECK_EQUAL(world.withdrawn_count, 1);
}

TEST(a_release_in_the_background_waits_for_all_servers) {
    world.attempt.is_background = true;
    start(DLOCK_RELEASING);
    for (size_t i = 0; i < 4; i++)
        reply_integer(i, 1);
    pass_time(world.now_us + ROUND_LINGER_US);
    CHECK_EQUAL(world.done_count, 0);
    reply_error(4, "WRONGTYPE no lock");
    check_result(DLOCK_OK, false, "");
}

TEST(a_release_in_the_background_tells_that_a_server_is_missing) {
    world.attempt.is_background = true;
    start(DLOCK_RELEASING);
    for (size_t i = 0; i < 4; i++)
        reply_integer(i, 0);
    fail_request(4, DLOCK_UNREACHABLE, "gone");
    check_result(DLOCK_LOST, true, "4 not held, 1 unreachable: s4: gone");
    start(DLOCK_RELEASING);
    for (size_t i = 0; i < 4; i++)
        reply_integer(i, 1);
    pass_time(world.now_us + IO_MS * 1000);
    check_result(DLOCK_OK, true, "");
}

TEST(a_release_that_is_abandoned_is_sent_all_the_same) {
    world.servers[3].is_connecting = true;
    start(DLOCK_RELEASING);
    skip_sent();
    deployment_abandon(world.redlock, &world.attempt);
    CHECK_SENT(RELEASE, "3");
    CHECK_EQUAL(world.done_count, 0);
    CHECK_EQUAL(world.withdrawn_count, 0);
}

TEST(a_release_of_a_lost_lock) {
    start(DLOCK_RELEASING);
    for (size_t i = 0; i < 3; i++)
        reply_integer(i, 0);
    reply_integer(3, 1);
    reply_integer(4, 1);
    check_result(DLOCK_LOST, false, "2 ok, 3 not held");
}

TEST(a_release_without_a_majority_of_replies) {
    world.servers[4].is_connecting = true;
    start(DLOCK_RELEASING);
    reply_integer(0, 1);
    reply_integer(1, 1);
    fail_request(2, DLOCK_UNREACHABLE, "Connection refused");
    skip_sent();
    pass_time(START_US + IO_MS * 1000);
    check_result(DLOCK_NO_QUORUM, true,
                 "2 ok, 1 unanswered, 2 unreachable: s2: Connection "
                 "refused; s3: no reply in time; s4: no connection in "
                 "time");
    CHECK_SENT(RELEASE, "4");
}

int main(void) {
    return unit_main(make_world, end_world);
}
