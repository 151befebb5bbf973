/* SPDX-License-Identifier: BSD-3-Clause */
/* custom_waits_test.c - a store whose acquires block or wait: releases and extensions pass them. */
#include "custom_world.h"

static void begin_acquires(try tries[ATTEMPTS]) {
    memset(tries, 0, ATTEMPTS * sizeof(*tries));
    set_blocked(true);
    for (int i = 0; i < ATTEMPTS; i++)
        start(&tries[i], DLOCK_ACQUIRING, LONG_MS);
    wait_for(&store.acquires, 8);
}

static void end_acquires(try tries[ATTEMPTS]) {
    set_blocked(false);
    for (int i = 0; i < ATTEMPTS; i++)
        finish(&tries[i]);
    end();
    for (int i = 0; i < ATTEMPTS; i++)
        attempt_free(&tries[i].attempt);
}

TEST(releases_and_extends_have_threads_of_their_own) {
    static try tries[ATTEMPTS];
    try other = {0};
    begin();
    store.is_release_free = true;
    begin_acquires(tries);
    start(&other, DLOCK_EXTENDING, LONG_MS);
    finish(&other);
    check(&other, DLOCK_LOST, false, "gone");
    start(&other, DLOCK_RELEASING, LONG_MS);
    finish(&other);
    check(&other, DLOCK_OK, false, "");
    CHECK_EQUAL(store.acquires, 8);
    attempt_free(&other.attempt);
    end_acquires(tries);
}

TEST(acquires_that_wait_have_threads_of_their_own) {
    static try waits[40];
    try other = {0};
    begin_with(true);
    CHECK(deployment_can_wait(custom));
    set_blocked(true);
    memset(waits, 0, sizeof(waits));
    for (int i = 0; i < 40; i++) {
        waits[i].attempt.wait_until_us = INT64_MAX;
        start(&waits[i], DLOCK_ACQUIRING, LONG_MS);
        wait_for(&store.acquires, i + 1);
    }
    CHECK_EQUAL(store.most_inside, 40); /* 32 that wait, and 8 that were to try once */
    set_blocked(false);
    for (int i = 0; i < 40; i++)
        finish(&waits[i]);
    start(&other, DLOCK_ACQUIRING, LONG_MS);
    finish(&other);
    CHECK_EQUAL(store.deadline_us, 0); /* a try */
    other.attempt.wait_until_us = 12345;
    start(&other, DLOCK_ACQUIRING, LONG_MS);
    finish(&other);
    CHECK_EQUAL(store.deadline_us, 12345);
    end();
    attempt_free(&other.attempt);
    for (int i = 0; i < 40; i++)
        attempt_free(&waits[i].attempt);
}

TEST(a_store_sees_that_an_acquire_was_abandoned) {
    try try = {0};
    begin_with(true);
    set_blocked(true);
    store.looks = true;
    store.acquire_status = DLOCK_BUSY;
    try.attempt.wait_until_us = INT64_MAX;
    start(&try, DLOCK_ACQUIRING, LONG_MS);
    wait_for(&store.acquires, 1);
    abandon(&try);
    attempt_free(&try.attempt);
    set_blocked(true); /* wakes the store, which looks */
    end();
    CHECK_EQUAL(store.inside, 0);
}

int main(void) {
    return unit_main(NULL, NULL);
}
