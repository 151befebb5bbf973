/* SPDX-License-Identifier: BSD-3-Clause */
/* renewal_session_test.c - locks that are tied to a session: renewed by its heartbeat, tied again
 * after the server has forgotten it, or lost. */
#include "renewal_world.h"

/* -- the heartbeat */

TEST(a_heartbeat_renews_a_lock_that_lasts_as_long_as_the_session) {
    lock *lock = begin_endless();
    for (int i = 1; i <= 5; i++) {
        int64_t gone_us = lease_gone_at_us(&lock->lease);
        run_until(T0_US + i * SESSION_MS / 3 * MS);
        beat();
        CHECK_EQUAL(lease_gone_at_us(&lock->lease), gone_us + SESSION_MS / 3 * MS);
        CHECK_EQUAL(state_of(lock), DLOCK_STATE_HELD);
        CHECK_EQUAL(atomic_load(&fake_deployment.renewed), i);
    }
    CHECK_EQUAL(starts, 0);
    end();
}

TEST(a_lock_whose_session_is_not_renewed_becomes_suspect_and_is_gone) {
    lock *lock = begin_endless();
    run_until(T0_US + SESSION_MS / 3 * MS);
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_HELD);
    int64_t gone_us = lease_gone_at_us(&lock->lease);
    CHECK(gone_us <= T0_US + SESSION_MS * MS);
    run_until(gone_us - 1);
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_SUSPECT);
    run_until(gone_us);
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_LOST);
    beat(); /* too late */
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_LOST);
    CHECK_EQUAL(starts, 0);
    end();
}

TEST(a_lock_with_a_lease_of_its_own_is_extended_and_ends_with_the_session_too) {
    lock *lock = begin_momentary();
    run_until(T0_US + EVERY_MS * MS);
    CHECK_EQUAL(starts, 1);
    CHECK_EQUAL(lock->attempt.operation, DLOCK_EXTENDING);
    answer(lock, DLOCK_OK);
    CHECK(lease_gone_at_us(&lock->lease) < T0_US + SESSION_MS * MS); /* there was no heartbeat */
    beat();
    CHECK(lease_gone_at_us(&lock->lease) > T0_US + SESSION_MS * MS);
    end();
}

/* -- losses */

static void check_lost(const lock *lock) {
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_LOST);
    CHECK_EQUAL(lock->lease.why, DLOCK_LOST);
    CHECK(lock->told_sooner >= 1);
    int before = lock->starts;
    run_until(fake_loop.now_us + 2 * LEASE_MS * MS);
    CHECK_EQUAL(lock->starts, before);
    end();
}

TEST(a_loss_that_the_session_tells_is_a_loss) {
    lock *lock = begin_endless();
    tell_lost(lock, "deleted");
    check_lost(lock);
}

TEST(a_loss_before_the_lock_was_kept_is_a_loss) {
    begin_world();
    init_renewed(&locks[0]);
    tie_lock(&locks[0], false, true);
    tell_lost(&locks[0], "deleted");
    hold(&locks[0]);
    check_lost(&locks[0]);
}

TEST(a_loss_while_the_owner_extends_is_a_loss) {
    lock *lock = begin_momentary();
    CHECK(renewal_pause(&lock->kept));
    tell_lost(lock, "deleted");
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_LOST);
    renewal_resume(&lock->kept);
    check_lost(lock);
}

TEST(a_key_that_moved_with_its_slot_is_tied_again) {
    lock *lock = begin_endless();
    tell_lost(lock, "moved");
    run_until(T0_US);
    CHECK_EQUAL(lock->attempt.operation, DLOCK_ACQUIRING);
    grant_tie(lock, FENCE);
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_HELD);
    end();
}

/* -- the server has forgotten the session */

static lock *begin_tie(void) {
    lock *lock = begin_endless();
    open_again(lock, true);
    run_until(T0_US);
    CHECK(lock->is_running);
    return lock;
}

TEST(a_server_that_has_forgotten_the_session_is_asked_again_with_the_same_token) {
    begin_world();
    lock *lock = &locks[0];
    init_renewed(lock);
    tie_lock(lock, false, true);
    hold(lock);
    run_until(T0_US + 100 * MS);
    open_again(lock, true);
    run_until(T0_US + 100 * MS);
    const attempt *attempt = &lock->attempt;
    CHECK(lock->is_running);
    CHECK_EQUAL(attempt->operation, DLOCK_ACQUIRING);
    CHECK_EQUAL(attempt->lease_ms, 1);
    CHECK_EQUAL(attempt->wait_until_us, 0);
    CHECK(attempt->is_background); /* the lock is held: nothing is withdrawn */
    CHECK(attempt->terms.tie == &lock->tie);
    grant_tie(lock, FENCE);
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_HELD);
    CHECK_EQUAL(atomic_load(&fake_deployment.renewed), 0);
    run_until(T0_US + EVERY_MS * MS); /* renewals go on */
    CHECK_EQUAL(attempt->operation, DLOCK_EXTENDING);
    answer(lock, DLOCK_OK);
    beat();
    CHECK_EQUAL(atomic_load(&fake_deployment.renewed), 2);
    end();
}

TEST(a_connection_that_was_replaced_costs_nothing) {
    lock *lock = begin_endless();
    end_connection(lock);
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_HELD);
    open_again(lock, false);
    run_until(T0_US + 1000 * MS);
    CHECK_EQUAL(starts, 0);
    end();
}

TEST(a_heartbeat_of_a_session_without_the_lock_renews_nothing) {
    lock *lock = begin_tie();
    int64_t gone_us = lease_gone_at_us(&lock->lease);
    run_until(T0_US + 100 * MS);
    beat();
    CHECK_EQUAL(lease_gone_at_us(&lock->lease), gone_us);
    grant_tie(lock, FENCE);
    CHECK_EQUAL(lease_gone_at_us(&lock->lease), gone_us + 100 * MS);
    end();
}

/* A master that was replaced may go on answering for a while. */
TEST(heartbeats_of_a_server_that_has_not_got_the_name_any_more_renew_nothing) {
    lock *lock = begin_endless();
    int64_t gone_us = lease_gone_at_us(&lock->lease);
    table_of(lock)->on_moved(&lock->tie.guest);
    for (int i = 0; i < 3; i++) {
        run_until(T0_US + i * 100 * MS);
        if (lock->is_running) answer(lock, DLOCK_UNREACHABLE);
        beat();
        CHECK_EQUAL(lease_gone_at_us(&lock->lease), gone_us);
    }
    CHECK_EQUAL(atomic_load(&fake_deployment.renewed), 0);
    end();
}

TEST(another_fence_is_another_lock_and_is_given_back) {
    lock *lock = begin_tie();
    grant_tie(lock, FENCE + 1);
    CHECK_EQUAL(withdrawals_added, 1);
    CHECK_EQUAL(withdrawn_for_ms, SESSION_MS);
    check_lost(lock);
}

/* The session may live on, and its lock lasts as long as the lease then. */
TEST(another_fence_is_given_back_until_the_lease_is_over) {
    lock *lock = begin_tie();
    lock->attempt.lease_ms = 10 * SESSION_MS;
    grant_tie(lock, FENCE + 1);
    CHECK_EQUAL(withdrawals_added, 1);
    CHECK_EQUAL(withdrawn_for_ms, 10 * SESSION_MS);
    check_lost(lock);
}

TEST(a_lock_that_another_holds_is_lost) {
    lock *lock = begin_tie();
    answer(lock, DLOCK_BUSY);
    CHECK_EQUAL(withdrawals_added, 0);
    check_lost(lock);
}

TEST(a_tie_that_is_refused_for_good_is_a_loss) {
    lock *lock = begin_tie();
    answer_with(lock, DLOCK_REFUSED, false);
    check_lost(lock);
}

/* However late the requests arrive: the same token gets the same lock. */
TEST(a_tie_that_failed_or_is_in_doubt_is_tried_again) {
    lock *lock = begin_tie();
    answer(lock, DLOCK_UNREACHABLE);
    CHECK_EQUAL(lock->lease.why, DLOCK_UNREACHABLE);
    run_until(T0_US + 20 * MS - 1);
    CHECK_EQUAL(lock->starts, 1);
    run_until(T0_US + 20 * MS);
    answer(lock, DLOCK_IN_DOUBT);
    run_until(T0_US + 60 * MS);
    answer_with(lock, DLOCK_REFUSED, true);
    run_until(T0_US + 140 * MS);
    CHECK_EQUAL(lock->starts, 4);
    grant_tie(lock, FENCE);
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_HELD);
    CHECK_EQUAL(lock->lease.why, DLOCK_OK);
    end();
}

TEST(a_lock_that_finds_no_server_is_gone_in_time) {
    lock *lock = begin_tie();
    while (lock->is_running) {
        answer(lock, DLOCK_UNREACHABLE);
        run_until(fake_loop.now_us + 500 * MS);
    }
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_LOST);
    CHECK(fake_loop.now_us <= T0_US + (SESSION_MS + 500) * MS);
    CHECK_EQUAL(lock->attempt.operation, DLOCK_ACQUIRING); /* no extension meanwhile */
    end();
}

TEST(a_session_that_is_forgotten_during_an_extension_is_tied_at_once) {
    lock *lock = begin_momentary();
    run_until(T0_US + EVERY_MS * MS);
    CHECK(lock->is_running);
    open_again(lock, true);
    CHECK(lock->is_abandoned);
    run_until(fake_loop.now_us);
    CHECK_EQUAL(lock->attempt.operation, DLOCK_ACQUIRING);
    end();
}

TEST(a_tie_under_way_is_not_begun_again) {
    lock *lock = begin_tie();
    open_again(lock, true);
    run_until(T0_US);
    CHECK_EQUAL(lock->starts, 1);
    CHECK(lock->is_running);
    end();
}

TEST(a_name_that_another_server_has_is_tied_there) {
    lock *lock = begin_endless();
    table_of(lock)->on_moved(&lock->tie.guest);
    run_until(T0_US);
    CHECK_EQUAL(lock->attempt.operation, DLOCK_ACQUIRING);
    grant_tie(lock, FENCE);
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_HELD);
    end();
}

TEST(a_session_that_was_forgotten_before_the_lock_was_kept_is_tied_again) {
    begin_world();
    init_renewed(&locks[0]);
    tie_lock(&locks[0], false, true);
    open_again(&locks[0], true);
    hold(&locks[0]);
    run_until(T0_US);
    CHECK_EQUAL(locks[0].attempt.operation, DLOCK_ACQUIRING);
    end();
}

TEST(a_session_that_is_forgotten_as_soon_as_the_lock_is_tied_is_tied_again) {
    lock *lock = begin_tie();
    lock->tie.is_forgotten = true;
    grant_tie(lock, FENCE);
    run_until(fake_loop.now_us);
    CHECK_EQUAL(lock->starts, 2);
    end();
}

TEST(a_refusal_of_the_session_is_why_the_lock_is_suspect) {
    lock *lock = begin_endless();
    table_of(lock)->on_unopened(&lock->tie.guest, DLOCK_REFUSED, "NOPERM no");
    CHECK_EQUAL(lock->lease.why, DLOCK_REFUSED);
    CHECK_EQUAL(starts, 0);
    end();
}

/* -- locks that end with the connection */

static lock *begin_cut_off(void) {
    lock *lock = begin_momentary();
    end_connection(lock);
    return lock;
}

TEST(a_lock_that_ends_with_the_connection_is_in_question_until_it_is_tied_again) {
    lock *lock = begin_cut_off();
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_SUSPECT);
    CHECK_EQUAL(lease_left_us(&lock->lease, fake_loop.now_us), 0);
    CHECK(lock->told_sooner >= 1);
    run_until(T0_US + 100 * MS);
    CHECK_EQUAL(starts, 0); /* nothing can be tied yet */
    open_again(lock, false);
    run_until(fake_loop.now_us);
    CHECK_EQUAL(lock->attempt.operation, DLOCK_ACQUIRING);
    grant_tie(lock, FENCE);
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_HELD);
    end();
}

TEST(a_connection_that_ends_before_the_lock_is_kept_puts_it_in_question) {
    begin_world();
    init_renewed(&locks[0]);
    tie_lock(&locks[0], false, true);
    is_open = false;
    hold(&locks[0]);
    CHECK_EQUAL(state_of(&locks[0]), DLOCK_STATE_SUSPECT);
    CHECK(!renewal_pause(&locks[0].kept));
    open_again(&locks[0], false);
    run_until(fake_loop.now_us);
    CHECK_EQUAL(locks[0].attempt.operation, DLOCK_ACQUIRING);
    end();
}

TEST(a_connection_that_ends_while_the_lock_is_tied_again_puts_it_in_question) {
    lock *lock = begin_cut_off();
    is_open = true;
    open_again(lock, false);
    run_until(fake_loop.now_us);
    is_open = false;
    grant_tie(lock, FENCE);
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_SUSPECT);
    end();
}

TEST(a_kept_lock_is_held_while_its_session_has_no_connection) {
    begin_world();
    init_renewed(&locks[0]);
    tie_lock(&locks[0], true, false);
    is_open = false;
    hold(&locks[0]);
    CHECK_EQUAL(state_of(&locks[0]), DLOCK_STATE_HELD);
    end();
}

TEST(a_connection_that_ends_during_an_extension_puts_the_lock_in_question) {
    lock *lock = begin_momentary();
    run_until(T0_US + EVERY_MS * MS);
    CHECK(lock->is_running);
    end_connection(lock);
    CHECK(lock->is_abandoned);
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_SUSPECT);
    end();
}

TEST(a_connection_that_ends_while_its_owner_extends_is_tied_afterwards) {
    lock *lock = begin_momentary();
    CHECK(renewal_pause(&lock->kept));
    end_connection(lock);
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_SUSPECT);
    open_again(lock, false);
    run_until(T0_US + 100 * MS);
    CHECK_EQUAL(starts, 0);
    CHECK(lease_extend(&lock->lease, fake_loop.now_us, LEASE_MS, fake_loop.now_us));
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_SUSPECT);
    renewal_resume(&lock->kept);
    run_until(fake_loop.now_us);
    CHECK_EQUAL(lock->attempt.operation, DLOCK_ACQUIRING);
    CHECK_EQUAL(starts, 1);
    end();
}

TEST(an_owner_cannot_extend_a_lock_that_is_cut_off) {
    lock *lock = begin_cut_off();
    CHECK(!renewal_pause(&lock->kept));
    open_again(lock, false);
    run_until(T0_US);
    CHECK(!renewal_pause(&lock->kept));
    CHECK(lock->is_running);
    answer(lock, DLOCK_UNREACHABLE);
    CHECK(!renewal_pause(&lock->kept));
    run_until(T0_US + 20 * MS);
    grant_tie(lock, FENCE);
    CHECK(renewal_pause(&lock->kept));
    end();
}

TEST(a_lock_without_renewal_is_tied_but_not_extended) {
    begin_world();
    init(&locks[0], &(lease_rule){.lease_ms = LEASE_MS});
    tie_lock(&locks[0], false, true);
    hold(&locks[0]);
    run_until(T0_US + EVERY_MS * MS);
    CHECK_EQUAL(starts, 0);
    end_connection(&locks[0]);
    open_again(&locks[0], false);
    run_until(T0_US + EVERY_MS * MS);
    CHECK_EQUAL(starts, 1);
    grant_tie(&locks[0], FENCE);
    CHECK_EQUAL(state_of(&locks[0]), DLOCK_STATE_HELD);
    run_until(T0_US + 2 * LEASE_MS * MS);
    CHECK_EQUAL(starts, 1);
    end();
}

/* The server, which was restarted, knows a lease as long as the timeout of the session. */
TEST(a_lock_without_renewal_that_is_tied_again_has_the_rest_of_its_lease) {
    begin_world();
    lock *lock = &locks[0];
    init(lock, &(lease_rule){.lease_ms = 10 * SESSION_MS});
    tie_lock(lock, false, true);
    hold(lock);
    run_until(T0_US + EVERY_MS * MS);
    open_again(lock, true);
    run_until(fake_loop.now_us);
    CHECK_EQUAL(lock->attempt.lease_ms, 10 * SESSION_MS - EVERY_MS);
    grant_tie(lock, FENCE);
    for (int i = 0; i < 3; i++) {
        run_until(fake_loop.now_us + SESSION_MS / 2 * MS);
        beat();
    }
    CHECK_EQUAL(state_of(lock), DLOCK_STATE_HELD);
    end();
}

/* -- given back */

TEST(a_lock_that_is_given_back_leaves_the_session) {
    lock *lock = begin_endless();
    renewal_end(&lock->kept);
    CHECK(lock->tie.guest.presence == NULL);
    CHECK_EQUAL(starts, 0);
    end();
}

TEST(a_tie_is_abandoned_when_the_lock_is_given_back) {
    lock *lock = begin_tie();
    renewal_end(&lock->kept);
    CHECK(lock->is_abandoned);
    CHECK(lock->tie.guest.presence == NULL);
    end();
}

int main(void) {
    return unit_main(NULL, NULL);
}
