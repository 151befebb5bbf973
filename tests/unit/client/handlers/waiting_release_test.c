/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting_release_test.c - releases that fail and what is known then; extensions. */
#include "waiting_world.h"

/* -- release */

TEST(a_release_is_sent_once) {
    call *call = begin_release(SCRIPT(granted, lost));
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    CHECK_CALLS(world.release, 1);
    CHECK(is_text(world.release.seen[0].token, "token"));
    CHECK_EQUAL(after_start_us(world.release.seen[0].limit_us), IO_MS * MS);
    CHECK_EQUAL(fake.withdrawn, 0);
}

TEST(a_lock_that_was_lost_before_the_release_is_lost) {
    call *call = begin_release(SCRIPT(lost, granted));
    CHECK_EQUAL(run(call, &spin), DLOCK_LOST);
    CHECK_CALLS(world.release, 1);
    CHECK_EQUAL(fake.withdrawn, 0);
}

TEST(a_release_that_failed_for_good_is_withdrawn_and_not_repeated) {
    const dlock_status all[] = {DLOCK_REFUSED, DLOCK_PROTOCOL, DLOCK_NO_MEMORY, DLOCK_IN_DOUBT};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        call *call = begin_release(SCRIPT(for_good(all[i]), granted));
        CHECK_EQUAL(run(call, &spin), all[i]);
        CHECK_CALLS(world.release, 1);
        CHECK_EQUAL(fake.withdrawn, 1);
        CHECK(is_text(fake.withdrawn_token, "token"));
    }
}

TEST(a_release_that_failed_is_repeated_after_a_pause) {
    call *call = begin_release(SCRIPT(slowly(unreachable, 30 * MS), refused_now, granted));
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    CHECK_CALLS(world.release, 3);
    check_begun(&world.release, 1, 40 * MS);
    check_begun(&world.release, 2, 50 * MS);
    for (size_t i = 0; i < 3; i++)
        CHECK_EQUAL(after_start_us(world.release.seen[i].limit_us), IO_MS * MS);
    CHECK_EQUAL(fake.withdrawn, 0);
}

TEST(lost_after_a_lost_reply_means_that_the_release_had_worked) {
    call *call = begin_release(SCRIPT(in_doubt, lost));
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    CHECK_CALLS(world.release, 2);
    CHECK(is_text(call->pub.cause, ""));
    call = begin_release(SCRIPT(in_doubt, unreachable, lost));
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    CHECK_CALLS(world.release, 3);
}

TEST(lost_after_a_lost_reply_is_lost_if_the_lease_had_ended_before) {
    call *call = begin_release(SCRIPT(in_doubt, lost));
    call->pub.asked_us = START_US - LEASE_MS * MS;
    CHECK_EQUAL(run(call, &spin), DLOCK_LOST);
}

TEST(lost_after_too_few_have_heard_it_means_that_the_release_had_worked) {
    call *call = begin_release(SCRIPT(no_quorum, lost));
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
}

TEST(lost_after_nothing_was_sent_is_lost) {
    call *call = begin_release(SCRIPT(unreachable, refused_now, lost));
    CHECK_EQUAL(run(call, &spin), DLOCK_LOST);
    CHECK_CALLS(world.release, 3);
}

TEST(a_release_gives_up_within_one_io_timeout) {
    call *call = begin_release(SCRIPT(unreachable));
    CHECK_EQUAL(run(call, &spin), DLOCK_UNREACHABLE);
    CHECK_CALLS(world.release, 20);
    check_begun(&world.release, 19, 190 * MS);
    CHECK(after_start_us(fake.now_us) <= IO_MS * MS);
    CHECK_EQUAL(fake.withdrawn, 1);
    call = begin_release(SCRIPT(refused_now));
    CHECK_EQUAL(run(call, &spin), DLOCK_REFUSED);
    CHECK(after_start_us(fake.now_us) <= IO_MS * MS);
}

TEST(a_release_whose_reply_never_came_is_in_doubt_and_withdrawn) {
    call *call = begin_release(SCRIPT(slowly(in_doubt, 200 * MS)));
    CHECK_EQUAL(run(call, &spin), DLOCK_IN_DOUBT);
    CHECK_CALLS(world.release, 1);
    CHECK_EQUAL(after_start_us(fake.now_us), IO_MS * MS);
    CHECK_EQUAL(fake.withdrawn, 1);
}

TEST(a_release_that_was_once_in_doubt_stays_so) {
    call *call = begin_release(SCRIPT(in_doubt, unreachable));
    CHECK_EQUAL(run(call, &spin), DLOCK_IN_DOUBT);
    CHECK_CALLS(world.release, 20);
}

TEST(a_release_that_has_no_time_for_a_pause_is_tried_once) {
    call *call = begin_release(SCRIPT(unreachable));
    world.deployment.io_timeout_ms = 10;
    CHECK_EQUAL(run(call, &spin), DLOCK_UNREACHABLE);
    CHECK_CALLS(world.release, 1);
    CHECK_EQUAL(fake.now_us, START_US);
}

/* -- on_sent */

static void count_sent(attempt *attempt) {
    call *call = attempt->arg;
    world.sent++;
    call->attempt.on_sent = NULL; /* as hotspot.c does */
}

/* Tells the release, behind the waiting handler's chain_begin(), whom to tell. */
static dlock_step ask_for_on_sent(void *arg, dlock_call *pub) {
    (void)arg;
    call_of(pub)->attempt.on_sent = count_sent;
    return DLOCK_PASS;
}

TEST(a_release_on_its_way_is_told_once) {
    void *slots[2] = {NULL, NULL};
    call *call = begin_release(SCRIPT(unreachable, granted));
    dlock_handler last = waiting_handler(&spin), first = {.order = 1, .enter = ask_for_on_sent};
    chain *chain = chain_new(2);
    chain_add(chain, first, true);
    chain_add(chain, last, true);
    call->slots = slots;
    chain_begin(call);
    CHECK_EQUAL(finish_call(chain, call), DLOCK_OK);
    CHECK_CALLS(world.release, 2);
    CHECK_EQUAL(world.sent, 1);
    free(chain);
}

/* -- extend */

TEST(an_extension_is_one_attempt_within_one_io_timeout) {
    call *call = begin_extend(SCRIPT(slowly(granted, 3 * MS)));
    call->pub.asked_us = START_US - SECOND;
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    CHECK_CALLS(world.extend, 1);
    CHECK(is_text(world.extend.seen[0].token, "token"));
    CHECK_EQUAL(after_start_us(world.extend.seen[0].limit_us), IO_MS * MS);
    CHECK_EQUAL(call->pub.asked_us, START_US);
    CHECK(call->attempt.fence == FENCE);
}

TEST(an_extension_that_fails_is_not_repeated_and_changes_nothing) {
    const step all[] = {unreachable, in_doubt, lost, for_good(DLOCK_REFUSED)};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        call *call = begin_extend(SCRIPT(all[i], granted));
        call->pub.asked_us = START_US - SECOND;
        CHECK_EQUAL(run(call, &spin), all[i].status);
        CHECK_CALLS(world.extend, 1);
        CHECK_EQUAL(call->pub.asked_us, START_US - SECOND);
        CHECK(is_text(call->pub.cause, "as scripted"));
        CHECK_EQUAL(fake.withdrawn, 0);
    }
}

int main(void) {
    return unit_main(NULL, NULL);
}
