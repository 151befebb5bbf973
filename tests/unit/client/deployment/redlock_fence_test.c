/* SPDX-License-Identifier: BSD-3-Clause */
/* redlock_fence_test.c - fences of several servers: which fence a lock gets if the servers grant
 * different ones, and that fences rise whichever majority grants. */
#include "redlock_world.h"

#define RELEASE "RELEASE lock me"
#define FENCE   1000010000
#define HOUR_US INT64_C(3600000000)

static const char refusal[] = "ERR FENCE must not be more than 5 minutes ahead of the clock";

/* -- raised */

TEST(smaller_fences_are_raised_before_the_grant_counts) {
    start(DLOCK_ACQUIRING);
    skip_sent();
    reply_integer(0, FENCE);
    reply_integer(1, FENCE + 7);
    world.now_us += 100;
    reply_integer(2, FENCE);
    CHECK_EQUAL(world.done_count, 0);
    CHECK_SENT("ACQUIRE lock me 10000 1000010007", "02");
    world.now_us += 100;
    reply_integer(2, FENCE + 7);
    reply_integer(0, FENCE + 9); /* a server may count on from further ahead */
    check_result(DLOCK_OK, false, "");
    CHECK_EQUAL(world.attempt.fence, FENCE + 7);
    CHECK_EQUAL(world.attempt.asked_us, START_US);
}

TEST(a_grant_with_different_fences_is_undone) {
    world.servers[4].is_connecting = true; /* its ACQUIRE is queued when the first round ends */
    start(DLOCK_ACQUIRING);
    reply_integer(0, FENCE);
    reply_integer(1, FENCE + 7);
    reply_integer(2, FENCE);
    skip_sent();
    reply_integer(0, FENCE);
    pass_time(world.now_us + ROUND_LINGER_US);
    check_result(DLOCK_NO_QUORUM, true, "a majority granted it, but not with the same fence");
    CHECK(world.attempt.is_split);
    CHECK_SENT(RELEASE, "01234");
    CHECK_EQUAL(world.withdrawn_count, 1); /* stragglers of the first round */
}

TEST(the_next_fence_is_larger_even_if_the_clock_is_behind) {
    start(DLOCK_ACQUIRING);
    for (size_t i = 0; i < 3; i++)
        reply_integer(i, FENCE + 50);
    skip_sent();
    start(DLOCK_ACQUIRING);
    CHECK_SENT("ACQUIRE lock me 10000 1000010051", "01234");
    deployment_abandon(world.redlock, &world.attempt);
}

/* -- far ahead */

TEST(a_server_far_ahead_does_not_decide_the_fence) {
    start(DLOCK_ACQUIRING);
    skip_sent();
    reply_integer(0, FENCE + HOUR_US);
    reply_integer(1, FENCE);
    reply_integer(2, FENCE);
    CHECK_EQUAL(world.done_count, 0); /* the others would refuse that fence */
    reply_integer(3, FENCE);
    check_result(DLOCK_OK, false, "");
    CHECK_EQUAL(world.attempt.fence, FENCE);
    CHECK_SENT("", "");
}

TEST(the_fence_proposed_next_is_not_far_ahead_either) {
    start(DLOCK_ACQUIRING);
    reply_integer(0, FENCE + HOUR_US);
    for (size_t i = 1; i < 4; i++)
        reply_integer(i, FENCE);
    skip_sent();
    start(DLOCK_ACQUIRING);
    CHECK_SENT("ACQUIRE lock me 10000 1000010001", "01234");
    deployment_abandon(world.redlock, &world.attempt);
}

TEST(a_skipped_server_is_asked_if_a_fence_is_far_ahead) {
    world.servers[3].is_skipped = world.servers[4].is_skipped = true;
    start(DLOCK_ACQUIRING);
    CHECK_SENT("ACQUIRE lock me 10000 1000010000", "012");
    reply_integer(0, FENCE + HOUR_US);
    reply_integer(1, FENCE);
    reply_integer(2, FENCE);
    CHECK_SENT("ACQUIRE lock me 10000 1000010000", "34");
    reply_integer(4, FENCE);
    check_result(DLOCK_OK, false, "");
    CHECK_EQUAL(world.attempt.fence, FENCE);
}

TEST(a_majority_far_ahead_decides_the_fence) {
    start(DLOCK_ACQUIRING);
    skip_sent();
    reply_integer(0, FENCE);
    reply_integer(1, FENCE);
    for (size_t i = 2; i < SERVERS; i++)
        reply_integer(i, FENCE + HOUR_US + (int64_t)i);
    check_result(DLOCK_OK, false, "");
    CHECK_EQUAL(world.attempt.fence, FENCE + HOUR_US + 2);
    CHECK_SENT("", "");
}

TEST(a_fence_far_ahead_is_asked_for_if_nobody_else_is_there) {
    start(DLOCK_ACQUIRING);
    fail_request(3, DLOCK_UNREACHABLE, "Connection refused");
    fail_request(4, DLOCK_UNREACHABLE, "Connection refused");
    skip_sent();
    reply_integer(0, FENCE + HOUR_US);
    reply_integer(1, FENCE);
    reply_integer(2, FENCE);
    CHECK_SENT("ACQUIRE lock me 10000 4600010000", "12");
    reply_error(1, refusal);
    reply_error(2, refusal);
    check_result(DLOCK_NO_QUORUM, true, "a majority granted it, but not with the same fence");
    CHECK_SENT(RELEASE, "012");
}

TEST(a_refused_fence_is_proposed_again_after_a_minute) {
    start(DLOCK_ACQUIRING);
    skip_sent();
    reply_integer(4, FENCE);
    for (size_t i = 0; i < 4; i++)
        reply_error(i, refusal);
    CHECK_EQUAL(world.done_count, 0);
    CHECK(strcmp(world.sent[world.seen_count].text, RELEASE) == 0);
    world.seen_count++;
    CHECK_SENT("ACQUIRE lock me~2 10000", "01234");
    for (size_t i = 0; i < 3; i++)
        reply_integer(i, 77);
    check_result(DLOCK_OK, false, "");
    CHECK_EQUAL(world.attempt.fence, 77);
    start(DLOCK_ACQUIRING);
    CHECK_SENT("ACQUIRE lock me~2 10000", "01234");
    deployment_abandon(world.redlock, &world.attempt);
    pass_time(world.now_us + 60 * 1000000);
    skip_sent();
    start(DLOCK_ACQUIRING);
    CHECK_SENT("ACQUIRE lock me~3 10000 1000010000", "01234");
    deployment_abandon(world.redlock, &world.attempt);
}

TEST(a_fence_that_a_minority_refuses_is_proposed_again) {
    start(DLOCK_ACQUIRING);
    reply_error(0, refusal);
    reply_error(1, refusal);
    for (size_t i = 2; i < SERVERS; i++)
        reply_nil(i);
    check_result(DLOCK_BUSY, false,
                 "3 busy, 2 failed: s0: ERR FENCE must not be more than 5 minutes ahead of the "
                 "clock; s1: ERR FENCE must not be more than 5 minutes ahead of the clock");
    skip_sent();
    start(DLOCK_ACQUIRING);
    CHECK_SENT("ACQUIRE lock me~2 10000 1000010000", "01234");
    deployment_abandon(world.redlock, &world.attempt);
}

/* -- whichever majority grants */

/* As the module counts; each lock is free again before the next acquire. */
typedef struct counter {
    int64_t ahead_us, last;
    int64_t granted; /* to the present token; 0: nothing yet */
} counter;

static int64_t asked_fence(size_t index) {
    for (size_t i = world.sent_count; i-- > 0;)
        if (world.sent[i].server == index && strncmp(world.sent[i].text, "ACQUIRE", 7) == 0) {
            const char *word = strrchr(world.sent[i].text, ' ');
            return strtoll(word, NULL, 10) == LEASE_MS ? 0 : strtoll(word, NULL, 10);
        }
    return 0;
}

static void grant_by(counter *counter, size_t index) {
    int64_t clock_us = world.unix_us + counter->ahead_us, wanted = asked_fence(index);
    if (wanted > counter->last && wanted > clock_us + 5 * 60 * INT64_C(1000000)) {
        reply_error(index, refusal);
        return;
    }
    int64_t next = counter->last + 1;
    if (next < clock_us) next = clock_us;
    if (counter->granted == 0) counter->last = counter->granted = next;
    if (counter->granted < wanted) counter->last = counter->granted = wanted;
    reply_integer(index, counter->granted);
}

/* A server in four is silent. Is the lock granted? */
static bool acquire_by(counter counters[SERVERS]) {
    bool is_silent[SERVERS];
    world.sent_count = world.seen_count = 0;
    for (size_t i = 0; i < SERVERS; i++) {
        counters[i].granted = 0;
        is_silent[i] = unit_random() % 4 == 0;
    }
    start(DLOCK_ACQUIRING);
    for (int step = 0; step < 60 && world.done_count == 0; step++) {
        size_t index = unit_random() % SERVERS;
        if (!is_silent[index] && world.servers[index].pending != NULL)
            grant_by(&counters[index], index);
    }
    if (world.done_count == 0) pass_time(world.now_us + IO_MS * 1000);
    world.done_count = 0;
    return world.attempt.status == DLOCK_OK;
}

TEST(fences_rise_whichever_servers_grant) {
    static const int64_t aheads_us[] = {0, 1000, 60000000, HOUR_US, -HOUR_US};
    int granted = 0;
    for (int round = 0; round < 60; round++) {
        counter counters[SERVERS] = {0};
        uint64_t last = 0;
        unit_restart();
        world.unix_us = 3 * HOUR_US;
        for (size_t i = 0; i < SERVERS; i++)
            counters[i].ahead_us = aheads_us[unit_random() % 5];
        for (int turn = 0; turn < 60; turn++) {
            world.unix_us += (int64_t)(unit_random() % 20000);
            if (!acquire_by(counters)) continue;
            CHECK(world.attempt.fence > last);
            last = world.attempt.fence;
            granted++;
        }
    }
    CHECK(granted > 60 * 60 / 4);
}

int main(void) {
    return unit_main(make_world, end_world);
}
