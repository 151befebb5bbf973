/* SPDX-License-Identifier: BSD-3-Clause */
/* custom_test.c - a store of the program's own, which may block: called by threads of the library,
 * bounded by the limit of the attempt. */
#include "custom_world.h"

TEST(the_answer_is_the_stores) {
    try try = {0};
    begin();
    int64_t before_us = clock_now_us(clock_system());
    start(&try, DLOCK_ACQUIRING, LONG_MS);
    finish(&try);
    check(&try, DLOCK_OK, false, "");
    CHECK_EQUAL(try.attempt.fence, 42);
    CHECK(try.attempt.asked_us >= before_us);
    start(&try, DLOCK_EXTENDING, LONG_MS);
    finish(&try);
    check(&try, DLOCK_LOST, false, "gone");
    start(&try, DLOCK_RELEASING, LONG_MS);
    finish(&try);
    check(&try, DLOCK_OK, false, "");
    CHECK_EQUAL(atomic_load(&commands), 3);
    attempt_free(&try.attempt);
    end();
}

TEST(an_acquire_that_the_store_did_not_answer_is_in_doubt) {
    try try = {0};
    begin();
    store.acquire_status = DLOCK_IN_DOUBT;
    start(&try, DLOCK_ACQUIRING, LONG_MS);
    finish(&try);
    check(&try, DLOCK_IN_DOUBT, true, "as the test wants");
    CHECK_EQUAL(try.attempt.fate, TOKEN_IN_DOUBT);
    try.attempt.fate = TOKEN_UNHELD;
    store.acquire_status = DLOCK_UNREACHABLE;
    start(&try, DLOCK_ACQUIRING, LONG_MS);
    finish(&try);
    check(&try, DLOCK_UNREACHABLE, true, "as the test wants");
    CHECK_EQUAL(try.attempt.fate, TOKEN_UNHELD);
    CHECK(strcmp(try.attempt.token, "me") == 0);
    attempt_free(&try.attempt);
    end();
}

TEST(an_attempt_ends_although_the_store_does_not_return) {
    try try = {0};
    begin();
    set_blocked(true);
    start(&try, DLOCK_ACQUIRING, SHORT_MS);
    wait_for(&store.acquires, 1);
    finish(&try);
    check(&try, DLOCK_IN_DOUBT, true, "test: no answer in time");
    start(&try, DLOCK_ACQUIRING, LONG_MS);
    CHECK(strcmp(try.attempt.token, "me~2") == 0);
    set_blocked(false);
    finish(&try);
    check(&try, DLOCK_OK, false, "");
    wait_for(&store.releases, 1); /* of the first one, which was granted too late */
    attempt_free(&try.attempt);
    end();
    CHECK(strcmp(store.released, "me") == 0);
    CHECK_EQUAL(store.releases, 1);
}

/* An acquire that the store has not answered yet, and that nobody waits for any more. */
static void abandon_acquire(try *try) {
    set_blocked(true);
    start(try, DLOCK_ACQUIRING, LONG_MS);
    wait_for(&store.acquires, 1);
    abandon(try);
    attempt_free(&try->attempt);
}

TEST(an_abandoned_acquire_is_released_by_its_thread) {
    try try = {0};
    begin();
    abandon_acquire(&try);
    store.release_status = DLOCK_UNREACHABLE;
    set_blocked(false);
    wait_for(&store.releases, 1);
    end();
    CHECK(!try.is_done);
    CHECK_EQUAL(withdrawn, 1);
}

TEST(an_abandoned_acquire_that_was_busy_needs_no_release) {
    try try = {0};
    begin();
    store.acquire_status = DLOCK_BUSY;
    abandon_acquire(&try);
    set_blocked(false);
    end();
    CHECK_EQUAL(store.releases, 0);
}

TEST(an_abandoned_acquire_is_released_if_an_earlier_one_was_in_doubt) {
    try try = {.attempt.fate = TOKEN_IN_DOUBT};
    begin();
    store.acquire_status = DLOCK_BUSY;
    abandon_acquire(&try);
    set_blocked(false);
    wait_for(&store.releases, 1);
    end();
    CHECK(strcmp(store.released, "me") == 0);
}

TEST(only_so_many_threads_call_the_store) {
    static try tries[ATTEMPTS];
    memset(tries, 0, sizeof(tries));
    begin();
    set_blocked(true);
    for (int i = 0; i < ATTEMPTS; i++)
        start(&tries[i], DLOCK_ACQUIRING, i == ATTEMPTS - 1 ? SHORT_MS : LONG_MS);
    wait_for(&store.acquires, 8);
    abandon(&tries[ATTEMPTS - 2]);
    finish(&tries[ATTEMPTS - 1]);
    check(&tries[ATTEMPTS - 1], DLOCK_UNREACHABLE, true, "test: no thread was free in time");
    set_blocked(false);
    for (int i = 0; i < ATTEMPTS - 2; i++)
        finish(&tries[i]);
    end();
    CHECK_EQUAL(store.most_inside, 8);
    CHECK_EQUAL(store.acquires, ATTEMPTS - 2); /* neither the abandoned one nor the late one */
    CHECK_EQUAL(store.releases, 0);
    for (int i = 0; i < ATTEMPTS; i++)
        attempt_free(&tries[i].attempt);
}

TEST(the_store_is_told_the_mode) {
    try try = {0};
    begin();
    CHECK(!custom->can_share); /* the table does not say that the store can */
    try.attempt.terms.mode = DLOCK_SHARED;
    try.attempt.terms.max_holders = 5;
    start(&try, DLOCK_ACQUIRING, LONG_MS);
    finish(&try);
    CHECK_EQUAL(store.mode, DLOCK_SHARED);
    CHECK_EQUAL(store.max_holders, 5);
    attempt_free(&try.attempt);
    end();
}

TEST(many_attempts_one_after_the_other) {
    try try = {0};
    begin();
    for (int i = 0; i < 2000; i++) {
        start(&try, DLOCK_ACQUIRING, LONG_MS);
        finish(&try);
        CHECK_EQUAL(try.attempt.status, DLOCK_OK);
    }
    attempt_free(&try.attempt);
    end();
}

TEST(a_client_that_was_never_used) {
    begin();
    end();
}

int main(void) {
    return unit_main(NULL, NULL);
}
