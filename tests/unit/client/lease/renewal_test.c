/* SPDX-License-Identifier: BSD-3-Clause */
/* renewal_test.c - extensions in the background, in waves, until a lock is given back or gone. */
#include "renewal_world.h"

TEST(a_lock_is_extended_when_that_is_due) {
    lock *lock = begin();
    run_until(T0_US + EVERY_MS * MS - 1);
    CHECK_EQUAL(starts, 0);
    run_until(T0_US + EVERY_MS * MS);
    CHECK_EQUAL(starts, 1);
    const attempt *attempt = &lock->attempt;
    CHECK_EQUAL(attempt->operation, DLOCK_EXTENDING);
    CHECK_EQUAL(attempt->lease_ms, LEASE_MS);
    CHECK_EQUAL(attempt->limit_us, fake_loop.now_us + (IO_MS + CONNECT_MS) * MS);
    CHECK_EQUAL(attempt->wait_until_us, 0);
    CHECK(attempt->fence == FENCE);
    CHECK(attempt->is_background);
    int64_t gone_us = lease_gone_at_us(&lock->lease);
    fake_loop.now_us += 5 * MS;
    answer(lock, DLOCK_OK);
    CHECK(!attempt->is_background);
    CHECK_EQUAL(lease_gone_at_us(&lock->lease), gone_us + EVERY_MS * MS);
    CHECK_EQUAL(atomic_load(&fake_deployment.renewed), 1);
    run_until(T0_US + 2 * EVERY_MS * MS);
    CHECK_EQUAL(starts, 2);
    CHECK_EQUAL(lock->told_sooner, 0);
}

TEST(a_lock_without_renewal_is_not_extended) {
    begin_world();
    init(&locks[0], &(lease_rule){.lease_ms = LEASE_MS});
    hold(&locks[0]);
    run_until(T0_US + 2 * LEASE_MS * MS);
    CHECK_EQUAL(starts, 0);
}

TEST(locks_that_are_due_soon_join_a_wave) {
    begin_world();
    const int64_t begun_ms[] = {0, EVERY_MS / 2, EVERY_MS / 2 + 1};
    for (int i = 0; i < 3; i++) {
        run_until(T0_US + begun_ms[i] * MS);
        init_renewed(&locks[i]);
        hold(&locks[i]);
    }
    run_until(T0_US + EVERY_MS * MS);
    CHECK_EQUAL(starts, 2);
    CHECK(locks[0].is_running && locks[1].is_running);
    answer(&locks[0], DLOCK_OK);
    answer(&locks[1], DLOCK_OK);
    run_until(T0_US + 2 * EVERY_MS * MS); /* the third alone, and its wave takes the two with it */
    CHECK_EQUAL(locks[2].starts, 1);
    CHECK_EQUAL(locks[0].started_us, locks[2].started_us);
    CHECK_EQUAL(locks[1].started_us, locks[2].started_us);
}

TEST(thousands_of_locks_are_a_few_waves) {
    begin_world();
    for (int i = 0; i < LOCKS; i++) {
        fake_loop.now_us = T0_US + i * 100;
        init_renewed(&locks[i]);
        hold(&locks[i]);
    }
    fake_loop.timer_runs = 0;
    run_until(T0_US + (EVERY_MS + 300) * MS);
    CHECK_EQUAL(starts, LOCKS);
    CHECK_EQUAL(fake_loop.timer_runs, 3); /* some are made to wait for the next wave */
    for (int i = 0; i < LOCKS; i++)
        answer(&locks[i], DLOCK_OK);
    CHECK_EQUAL(atomic_load(&fake_deployment.renewed), LOCKS);
}

TEST(a_failed_extension_is_tried_again_until_the_lock_is_gone) {
    lock *lock = begin();
    int64_t gone_us = lease_gone_at_us(&lock->lease), pause_ms = 20;
    run_until(T0_US + EVERY_MS * MS);
    for (int i = 0; i < 8; i++) {
        CHECK_EQUAL(lock->starts, i + 1);
        answer(lock, DLOCK_UNREACHABLE);
        CHECK_EQUAL(lock->lease.why, DLOCK_UNREACHABLE);
        run_until(fake_loop.now_us + pause_ms * MS - 1);
        CHECK_EQUAL(lock->starts, i + 1);
        run_until(fake_loop.now_us + 1);
        pause_ms = pause_ms * 2 < 500 ? pause_ms * 2 : 500;
    }
    while (lock->is_running) {
        answer_with(lock, DLOCK_REFUSED, false);
        run_until(fake_loop.now_us + 500 * MS);
    }
    CHECK(fake_loop.now_us >= gone_us && fake_loop.now_us <= gone_us + 500 * MS);
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_LOST);
}

TEST(a_success_ends_the_pauses) {
    lock *lock = begin();
    run_until(T0_US + EVERY_MS * MS);
    answer(lock, DLOCK_IN_DOUBT);
    run_until(fake_loop.now_us + 20 * MS);
    answer(lock, DLOCK_OK);
    CHECK_EQUAL(lock->lease.why, DLOCK_OK);
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_HELD);
    run_until(lock->started_us + EVERY_MS * MS);
    CHECK_EQUAL(lock->starts, 3);
}

TEST(a_lock_that_its_server_forgot_is_lost) {
    lock *lock = begin();
    run_until(T0_US + EVERY_MS * MS);
    answer(lock, DLOCK_LOST);
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_LOST);
    CHECK_EQUAL(lock->lease.why, DLOCK_LOST);
    CHECK_EQUAL(lock->told_sooner, 1);
    run_until(T0_US + 3 * LEASE_MS * MS);
    CHECK_EQUAL(lock->starts, 1);
}

TEST(a_reply_that_comes_too_late_does_not_count) {
    lock *lock = begin();
    run_until(T0_US + LEASE_MS * MS);
    CHECK_EQUAL(lock->starts, 1);
    answer(lock, DLOCK_OK);
    CHECK_EQUAL(atomic_load(&fake_deployment.renewed), 0);
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_LOST);
    run_until(T0_US + 3 * LEASE_MS * MS);
    CHECK_EQUAL(lock->starts, 1);
}

TEST(a_lock_is_not_held_for_longer_than_its_bound) {
    begin_world();
    init(&locks[0], &(lease_rule){.lease_ms = LEASE_MS,
                                  .renew_every_ms = EVERY_MS,
                                  .max_hold_ms = 30000,
                                  .io_timeout_ms = IO_MS});
    hold(&locks[0]);
    while (heap_first(&fake_loop.timers) != NULL) {
        run_until(heap_first(&fake_loop.timers)->due_us);
        if (locks[0].is_running) answer(&locks[0], DLOCK_OK);
    }
    int64_t gone_us = lease_gone_at_us(&locks[0].lease);
    CHECK(gone_us <= T0_US + 30000 * MS && gone_us > T0_US + 28000 * MS);
}

TEST(extensions_with_replicas_go_together) {
    begin_world();
    for (int i = 0; i < 20; i++) {
        init_renewed(&locks[i]);
        locks[i].attempt.terms.min_replicas = 1;
        hold(&locks[i]);
    }
    run_until(T0_US + EVERY_MS * MS);
    CHECK_EQUAL(starts, 20);
    answer(&locks[0], DLOCK_OK);
    renewal_end(&locks[1].kept);
    answer(&locks[2], DLOCK_NO_REPLICAS);
    run_until(fake_loop.now_us + 20 * MS);
    CHECK_EQUAL(starts, 21);
}

TEST(a_lock_that_is_given_back_is_left_alone) {
    lock *lock = begin();
    run_until(T0_US + EVERY_MS * MS);
    renewal_end(&lock->kept);
    CHECK(lock->is_abandoned);
    CHECK(lock->kept.renewal == NULL);
    renewal_end(&lock->kept);
    run_until(T0_US + 3 * LEASE_MS * MS);
    CHECK_EQUAL(starts, 1);
    hold(lock); /* and can be kept again */
    run_until(fake_loop.now_us + EVERY_MS * MS);
    CHECK_EQUAL(starts, 2);
}

TEST(an_extension_by_the_owner_has_the_attempt_for_itself) {
    lock *lock = begin();
    run_until(T0_US + EVERY_MS * MS);
    CHECK(renewal_pause(&lock->kept));
    CHECK(lock->is_abandoned);
    run_until(T0_US + 2 * EVERY_MS * MS);
    CHECK_EQUAL(starts, 1);
    CHECK(lease_extend(&lock->lease, fake_loop.now_us, LEASE_MS, fake_loop.now_us));
    renewal_resume(&lock->kept);
    renewal_resume(&lock->kept);
    run_until(T0_US + 3 * EVERY_MS * MS - 1);
    CHECK_EQUAL(starts, 1);
    run_until(T0_US + 3 * EVERY_MS * MS);
    CHECK_EQUAL(starts, 2);
}

TEST(a_renewal_that_is_overdue_follows_the_owner_at_once) {
    lock *lock = begin();
    CHECK(renewal_pause(&lock->kept));
    run_until(T0_US + (EVERY_MS + IO_MS) * MS);
    renewal_resume(&lock->kept);
    run_until(fake_loop.now_us + 1 * MS);
    CHECK_EQUAL(starts, 1);
}

TEST(a_lock_that_is_not_kept_can_be_paused) {
    begin_world();
    init_renewed(&locks[0]);
    CHECK(renewal_pause(&locks[0].kept));
    renewal_resume(&locks[0].kept);
    CHECK(heap_first(&fake_loop.timers) == &life->timer.node); /* no other */
}

int main(void) {
    return unit_main(NULL, end);
}
