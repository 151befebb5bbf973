/* SPDX-License-Identifier: BSD-3-Clause */
/* renewal_session_test.c - sessions whose connection ends: moved to another, or lost. */
#include "renewal_world.h"

static void a_session_without_its_connection_is_in_question_and_is_moved(void) {
    begin_world();
    lock *lock = &locks[0];
    init_renewed(lock);
    make_session(lock);
    lock->attempt.terms.min_replicas = 2;
    hold(lock);
    run_until(T0_US + 100 * MS);
    break_session(lock);
    CHECK_EQUAL(state_of(lock), DLOCK_SUSPECT);
    CHECK_EQUAL(lease_left_us(&lock->lease, fake_loop.now_us), 0);
    CHECK_EQUAL(lock->told_sooner, 1);
    run_until(T0_US + 100 * MS);
    CHECK(lock->is_running);
    const attempt *attempt = &lock->attempt;
    CHECK_EQUAL(attempt->operation, DLOCK_ACQUIRING);
    CHECK_EQUAL(attempt->lease_ms, 1);
    CHECK_EQUAL(attempt->terms.min_replicas, 0);
    CHECK_EQUAL(attempt->wait_until_us, 0);
    CHECK(attempt->terms.session == &lock->session && lock->session.own == NULL);
    CHECK(lock->connections[0].is_closed);
    grant_move(lock, FENCE);
    CHECK_EQUAL(state_of(lock), DLOCK_HELD);
    CHECK_EQUAL(attempt->terms.min_replicas, 2);
    CHECK(attempt->fence == FENCE);
    CHECK_EQUAL((int64_t)atomic_load(&tested.count), 0);
    CHECK(!lock->connections[1].is_closed);
    run_until(T0_US + EVERY_MS * MS); /* renewals go on */
    CHECK_EQUAL(attempt->operation, DLOCK_EXTENDING);
    answer(lock, DLOCK_OK);
    break_session(lock); /* and so does the watch over the connection */
    CHECK_EQUAL(state_of(lock), DLOCK_SUSPECT);
    end();
}

static void check_lost(const lock *lock) {
    CHECK_EQUAL(state_of(lock), DLOCK_GONE);
    CHECK_EQUAL(lock->lease.why, DLOCK_LOST);
    CHECK_EQUAL(lock->told_sooner, 2);
    CHECK(lock->attempt.fence == FENCE);
    CHECK(lock->session.own == NULL);
    run_until(fake_loop.now_us + 2 * LEASE_MS * MS);
    CHECK_EQUAL(lock->starts, 1);
    end();
}

static lock *begin_move(void) {
    lock *lock = begin_session();
    break_session(lock);
    run_until(T0_US);
    return lock;
}

static void another_fence_is_another_lock_and_is_given_back(void) {
    lock *lock = begin_move();
    grant_move(lock, FENCE + 1);
    CHECK_EQUAL(withdrawals_added, 1);
    CHECK(lock->connections[1].is_closed);
    check_lost(lock);
}

static void a_session_that_another_holds_is_lost(void) {
    lock *lock = begin_move();
    answer(lock, DLOCK_BUSY);
    check_lost(lock);
}

static void a_move_in_doubt_is_a_loss(void) {
    lock *lock = begin_move();
    answer(lock, DLOCK_IN_DOUBT);
    CHECK_EQUAL(withdrawals_added, 0);
    check_lost(lock);
}

static void a_server_that_may_have_granted_a_move_is_a_loss(void) {
    lock *lock = begin_move();
    lock->attempt.may_hold = true;
    answer(lock, DLOCK_UNREACHABLE);
    check_lost(lock);
}

static void a_move_that_is_refused_for_good_is_a_loss(void) {
    lock *lock = begin_move();
    answer_with(lock, DLOCK_REFUSED, false);
    check_lost(lock);
}

static void a_move_that_reached_nobody_is_tried_again(void) {
    lock *lock = begin_move();
    answer(lock, DLOCK_UNREACHABLE);
    CHECK_EQUAL(lock->lease.why, DLOCK_UNREACHABLE);
    run_until(T0_US + 20 * MS - 1);
    CHECK_EQUAL(lock->starts, 1);
    run_until(T0_US + 20 * MS);
    answer_with(lock, DLOCK_REFUSED, true);
    run_until(T0_US + 60 * MS);
    CHECK_EQUAL(lock->starts, 3);
    CHECK_EQUAL(state_of(lock), DLOCK_SUSPECT);
    grant_move(lock, FENCE);
    CHECK_EQUAL(state_of(lock), DLOCK_HELD);
    CHECK_EQUAL(lock->lease.why, DLOCK_OK);
    end();
}

static void a_session_that_finds_no_server_is_gone_in_time(void) {
    lock *lock = begin_move();
    while (lock->is_running) {
        answer(lock, DLOCK_UNREACHABLE);
        run_until(fake_loop.now_us + 500 * MS);
    }
    CHECK_EQUAL(state_of(lock), DLOCK_GONE);
    CHECK(fake_loop.now_us <= T0_US + (LEASE_MS + 500) * MS);
    CHECK_EQUAL(lock->attempt.operation, DLOCK_ACQUIRING); /* no extension meanwhile */
    end();
}

static void a_session_without_renewal_is_moved_but_not_extended(void) {
    begin_world();
    init(&locks[0], &(lease_rule){.lease_ms = LEASE_MS});
    make_session(&locks[0]);
    hold(&locks[0]);
    run_until(T0_US + EVERY_MS * MS);
    CHECK_EQUAL(starts, 0);
    break_session(&locks[0]);
    run_until(T0_US + EVERY_MS * MS);
    CHECK_EQUAL(starts, 1);
    grant_move(&locks[0], FENCE);
    CHECK_EQUAL(state_of(&locks[0]), DLOCK_HELD);
    run_until(T0_US + 2 * LEASE_MS * MS);
    CHECK_EQUAL(starts, 1);
    end();
}

static void a_session_that_breaks_during_an_extension_is_moved_at_once(void) {
    lock *lock = begin_session();
    run_until(T0_US + EVERY_MS * MS);
    CHECK(lock->is_running);
    break_session(lock);
    CHECK(lock->is_abandoned);
    run_until(fake_loop.now_us);
    CHECK_EQUAL(lock->attempt.operation, DLOCK_ACQUIRING);
    CHECK(lock->attempt.is_background); /* the lock is held: nothing is withdrawn */
    end();
}

static void a_session_that_breaks_while_its_owner_extends_is_moved_afterwards(void) {
    lock *lock = begin_session();
    CHECK(renewal_pause(&lock->kept));
    break_session(lock);
    CHECK_EQUAL(state_of(lock), DLOCK_SUSPECT);
    run_until(T0_US + 100 * MS);
    CHECK_EQUAL(starts, 0);
    CHECK(lease_extend(&lock->lease, fake_loop.now_us, LEASE_MS, fake_loop.now_us));
    CHECK_EQUAL(state_of(lock), DLOCK_SUSPECT);
    renewal_resume(&lock->kept);
    run_until(fake_loop.now_us);
    CHECK_EQUAL(lock->attempt.operation, DLOCK_ACQUIRING);
    CHECK_EQUAL(starts, 1);
    end();
}

static void an_owner_cannot_extend_a_session_that_is_cut_off(void) {
    lock *lock = begin_session();
    break_session(lock);
    CHECK(!renewal_pause(&lock->kept));
    run_until(T0_US);
    CHECK(!renewal_pause(&lock->kept));
    CHECK(lock->is_running);
    answer(lock, DLOCK_UNREACHABLE);
    CHECK(!renewal_pause(&lock->kept));
    run_until(T0_US + 20 * MS);
    grant_move(lock, FENCE);
    CHECK(renewal_pause(&lock->kept));
    end();
}

static void a_session_that_broke_before_it_was_kept_is_moved(void) {
    begin_world();
    init_renewed(&locks[0]);
    make_session(&locks[0]);
    locks[0].connections[0].own.conn = NULL;
    hold(&locks[0]);
    CHECK_EQUAL(state_of(&locks[0]), DLOCK_SUSPECT);
    run_until(T0_US);
    CHECK_EQUAL(locks[0].attempt.operation, DLOCK_ACQUIRING);
    end();
}

static void a_session_that_breaks_as_soon_as_it_is_moved_is_moved_again(void) {
    lock *lock = begin_move();
    lock->connections[1].own.conn = NULL;
    grant_move(lock, FENCE);
    CHECK_EQUAL(state_of(lock), DLOCK_SUSPECT);
    run_until(fake_loop.now_us);
    CHECK_EQUAL(lock->starts, 2);
    CHECK(lock->connections[1].is_closed);
    end();
}

static void a_session_that_is_given_back_keeps_its_connection(void) {
    lock *lock = begin_session();
    renewal_end(&lock->kept);
    CHECK(lock->session.own == &lock->connections[0].own);
    CHECK(!lock->connections[0].is_closed);
    CHECK(lock->connections[0].own.on_broken == NULL);
    end();
}

static void a_broken_session_that_is_given_back_has_no_connection(void) {
    lock *lock = begin_session();
    break_session(lock);
    renewal_end(&lock->kept);
    CHECK(lock->session.own == NULL);
    CHECK(lock->connections[0].is_closed);
    CHECK_EQUAL(starts, 0);
    end();
}

static void a_move_is_withdrawn_when_the_lock_is_given_back(void) {
    lock *lock = begin_move();
    renewal_end(&lock->kept);
    CHECK(lock->is_abandoned);
    CHECK(lock->attempt.fence == FENCE);
    end();
}

int main(void) {
    UNIT_RUN(a_session_without_its_connection_is_in_question_and_is_moved);
    UNIT_RUN(another_fence_is_another_lock_and_is_given_back);
    UNIT_RUN(a_session_that_another_holds_is_lost);
    UNIT_RUN(a_move_in_doubt_is_a_loss);
    UNIT_RUN(a_server_that_may_have_granted_a_move_is_a_loss);
    UNIT_RUN(a_move_that_is_refused_for_good_is_a_loss);
    UNIT_RUN(a_move_that_reached_nobody_is_tried_again);
    UNIT_RUN(a_session_that_finds_no_server_is_gone_in_time);
    UNIT_RUN(a_session_without_renewal_is_moved_but_not_extended);
    UNIT_RUN(a_session_that_breaks_during_an_extension_is_moved_at_once);
    UNIT_RUN(a_session_that_breaks_while_its_owner_extends_is_moved_afterwards);
    UNIT_RUN(an_owner_cannot_extend_a_session_that_is_cut_off);
    UNIT_RUN(a_session_that_broke_before_it_was_kept_is_moved);
    UNIT_RUN(a_session_that_breaks_as_soon_as_it_is_moved_is_moved_again);
    UNIT_RUN(a_session_that_is_given_back_keeps_its_connection);
    UNIT_RUN(a_broken_session_that_is_given_back_has_no_connection);
    UNIT_RUN(a_move_is_withdrawn_when_the_lock_is_given_back);
    return unit_summary();
}
