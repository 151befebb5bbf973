/* SPDX-License-Identifier: BSD-3-Clause */
/* thread_test.c - one thread sleeps, another wakes it. */
#include "base/thread.h"

#include "base/clock.h"
#include "unit.h"

static wakeup bell;

static int64_t wait_us(unsigned seen, int64_t timeout_us) {
    int64_t before_us = clock_now_us(clock_system());
    wakeup_wait(&bell, seen, timeout_us);
    return clock_now_us(clock_system()) - before_us;
}

static void a_signal_before_the_wait_is_not_lost(void) {
    unsigned seen = wakeup_seen(&bell);
    wakeup_signal(&bell);
    CHECK(wait_us(seen, -1) < 10000000);
}

static void a_wait_ends_after_its_timeout(void) {
    CHECK(wait_us(wakeup_seen(&bell), 20000) >= 10000);
    wait_us(wakeup_seen(&bell), 0);
}

static void *signal_once(void *arg) {
    wakeup_signal(arg);
    return NULL;
}

static void another_thread_ends_a_wait_without_timeout(void) {
    pthread_t thread;
    unsigned seen = wakeup_seen(&bell);
    CHECK(thread_start(&thread, signal_once, &bell));
    while (wakeup_seen(&bell) == seen)
        wakeup_wait(&bell, seen, -1);
    pthread_join(thread, NULL);
}

static void a_list_raises_at_once_and_wakes_later(void) {
    static wakeup many[WAKE_LIST_MAX + 10];
    wake_list list = {.count = 0};
    for (size_t i = 0; i < WAKE_LIST_MAX + 10; i++)
        wake_list_add(&list, &many[i]);
    for (size_t i = 0; i < WAKE_LIST_MAX + 10; i++)
        CHECK_EQUAL(wakeup_seen(&many[i]), 1);
    CHECK_EQUAL((int64_t)list.count, WAKE_LIST_MAX);
    wake_list_wake(&list);
}

static void the_clock_goes_on_and_chance_varies(void) {
    const clock_source *clock = clock_system();
    CHECK(clock->now_us(clock) > 0);
    CHECK(clock->unix_us(clock) > INT64_C(1600000000) * 1000000);
    CHECK(clock->random_bits(clock) != clock->random_bits(clock));
    CHECK(clock->skip_to == NULL);
}

int main(void) {
    UNIT_RUN(a_signal_before_the_wait_is_not_lost);
    UNIT_RUN(a_wait_ends_after_its_timeout);
    UNIT_RUN(another_thread_ends_a_wait_without_timeout);
    UNIT_RUN(a_list_raises_at_once_and_wakes_later);
    UNIT_RUN(the_clock_goes_on_and_chance_varies);
    return unit_summary();
}
