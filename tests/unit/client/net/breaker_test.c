/* SPDX-License-Identifier: BSD-3-Clause */
/* breaker_test.c - when the circuit of a server opens, and for how long. */
#include "net/breaker.h"

#include "unit.h"

enum { TOLERATED = 2, FIRST_US = 100000, MAX_US = 2000000 };

static breaker circuit;

static void begin(void) {
    circuit = (breaker){0};
}

static void fail(int times, int64_t now_us) {
    for (int i = 0; i < times; i++)
        breaker_note(&circuit, false, now_us);
}

TEST(a_server_without_failures_is_tried) {
    CHECK(breaker_allows(&circuit, 0));
    breaker_note(&circuit, true, 1);
    CHECK(breaker_allows(&circuit, 2));
}

TEST(some_failures_are_tolerated) {
    fail(TOLERATED, 1000);
    CHECK(breaker_allows(&circuit, 1000));
}

TEST(more_failures_open_the_circuit_for_a_moment) {
    fail(TOLERATED + 1, 1000);
    CHECK(!breaker_allows(&circuit, 1000));
    CHECK(!breaker_allows(&circuit, 1000 + FIRST_US - 1));
    CHECK(breaker_allows(&circuit, 1000 + FIRST_US));
}

TEST(a_success_in_between_starts_the_count_again) {
    fail(TOLERATED, 1000);
    breaker_note(&circuit, true, 1000);
    fail(TOLERATED, 1000);
    CHECK(breaker_allows(&circuit, 1000));
}

TEST(after_the_pause_one_caller_may_try) {
    fail(TOLERATED + 1, 0);
    CHECK(breaker_allows(&circuit, FIRST_US));
    CHECK(!breaker_allows(&circuit, FIRST_US));
    CHECK(!breaker_allows(&circuit, FIRST_US + 1));
}

TEST(a_trial_that_succeeds_closes_the_circuit) {
    fail(TOLERATED + 1, 0);
    CHECK(breaker_allows(&circuit, FIRST_US));
    breaker_note(&circuit, true, FIRST_US);
    CHECK(breaker_allows(&circuit, FIRST_US));
    CHECK(breaker_allows(&circuit, FIRST_US));
}

TEST(a_trial_that_fails_makes_the_pause_longer_up_to_a_bound) {
    fail(TOLERATED + 1, 0);
    int64_t now_us = FIRST_US, pause_us = FIRST_US;
    for (int i = 0; i < 10; i++) {
        CHECK(breaker_allows(&circuit, now_us));
        breaker_note(&circuit, false, now_us);
        pause_us = pause_us * 2 < MAX_US ? pause_us * 2 : MAX_US;
        CHECK(!breaker_allows(&circuit, now_us + pause_us - 1));
        now_us += pause_us;
    }
    CHECK_EQUAL(pause_us, MAX_US);
}

TEST(a_trial_without_a_result_does_not_block_the_circuit) {
    fail(TOLERATED + 1, 0);
    CHECK(breaker_allows(&circuit, FIRST_US));
    CHECK(breaker_allows(&circuit, FIRST_US + 2 * FIRST_US));
}

TEST(many_failures_at_once_count_once) {
    fail(1000, 0);
    CHECK(breaker_allows(&circuit, FIRST_US));
}

int main(void) {
    return unit_main(begin, NULL);
}
