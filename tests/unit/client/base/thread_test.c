/* SPDX-License-Identifier: BSD-3-Clause */
/* thread_test.c - one thread sleeps, another wakes it. */
#define _GNU_SOURCE /* pthread_setattr_default_np() */
#include "base/thread.h"

#include "base/clock.h"
#include "unit.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>

static wakeup bell;

static int64_t wait_us(unsigned seen, int64_t timeout_us) {
    int64_t before_us = clock_now_us(clock_system());
    wakeup_wait(&bell, seen, timeout_us);
    return clock_now_us(clock_system()) - before_us;
}

TEST(a_signal_before_the_wait_is_not_lost) {
    unsigned seen = wakeup_seen(&bell);
    wakeup_signal(&bell);
    CHECK(wait_us(seen, -1) < 10000000);
}

TEST(a_wait_ends_after_its_timeout) {
    CHECK(wait_us(wakeup_seen(&bell), 20000) >= 10000);
    wait_us(wakeup_seen(&bell), 0);
}

static void *signal_once(void *arg) {
    wakeup_signal(arg);
    return NULL;
}

TEST(another_thread_ends_a_wait_without_timeout) {
    pthread_t thread;
    unsigned seen = wakeup_seen(&bell);
    CHECK(thread_start(&thread, signal_once, &bell));
    while (wakeup_seen(&bell) == seen)
        wakeup_wait(&bell, seen, -1);
    pthread_join(thread, NULL);
}

static void *read_signal_mask(void *arg) {
    pthread_sigmask(SIG_SETMASK, NULL, arg);
    return NULL;
}

TEST(only_signals_of_a_fault_reach_a_thread) {
    const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    const int others[] = {SIGINT, SIGTERM, SIGHUP, SIGALRM, SIGCHLD, SIGUSR1, SIGPROF, SIGRTMIN};
    pthread_t thread;
    sigset_t blocked;
    CHECK(thread_start(&thread, read_signal_mask, &blocked));
    pthread_join(thread, NULL);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        CHECK_EQUAL(sigismember(&blocked, faults[i]), 0);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        CHECK_EQUAL(sigismember(&blocked, others[i]), 1);
}

TEST(the_caller_keeps_its_own_signal_mask) {
    pthread_t thread;
    sigset_t blocked;
    CHECK(thread_start(&thread, read_signal_mask, &blocked));
    pthread_join(thread, NULL);
    read_signal_mask(&blocked);
    CHECK_EQUAL(sigismember(&blocked, SIGTERM), 0);
}

TEST(a_thread_that_cannot_be_started_says_why) {
    pthread_attr_t before, huge;
    pthread_t thread;
    pthread_getattr_default_np(&before);
    pthread_attr_init(&huge);
    CHECK_EQUAL(pthread_attr_setstacksize(&huge, (size_t)1 << 50), 0);
    CHECK_EQUAL(pthread_setattr_default_np(&huge), 0);
    errno = ENOENT;
    bool is_started = thread_start(&thread, signal_once, &bell);
    int fault = errno;
    pthread_setattr_default_np(&before);
    CHECK(!is_started);
    CHECK_EQUAL(fault, EAGAIN);
}

/* -- sleepers */

typedef struct sleeping_thread {
    pthread_t thread;
    int seat;
    bool is_marked; /* with the mutex */
} sleeping_thread;

enum { SLEEPING = 40 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sleepers beds;
static int seated, awake;

static void *sleep_until_marked(void *arg) {
    sleeping_thread *self = arg;
    pthread_mutex_lock(&mutex);
    self->seat = sleepers_take_seat(&beds);
    seated++;
    while (!self->is_marked) {
        unsigned seen = sleepers_seen(&beds, self->seat);
        pthread_mutex_unlock(&mutex);
        sleepers_wait(&beds, self->seat, seen);
        pthread_mutex_lock(&mutex);
    }
    awake++;
    sleepers_leave_seat(&beds, self->seat);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static void await_count(const int *count, int wanted) {
    for (bool is_there = false; !is_there;) {
        pthread_mutex_lock(&mutex);
        is_there = *count >= wanted;
        pthread_mutex_unlock(&mutex);
        if (!is_there) sched_yield();
    }
}

TEST(one_call_wakes_every_marked_sleeper) {
    static sleeping_thread threads[SLEEPING];
    seat_set marked;
    for (int i = 0; i < SLEEPING; i++)
        CHECK(thread_start(&threads[i].thread, sleep_until_marked, &threads[i]));
    await_count(&seated, SLEEPING);
    pthread_mutex_lock(&mutex);
    CHECK(!sleepers_take_marks(&beds, &marked));
    for (int i = 0; i < SLEEPING; i++) {
        for (int j = 0; j < i; j++)
            CHECK(threads[i].seat != threads[j].seat);
        threads[i].is_marked = true;
        sleepers_mark(&beds, threads[i].seat);
    }
    CHECK(sleepers_take_marks(&beds, &marked));
    pthread_mutex_unlock(&mutex);
    sleepers_wake(&beds, &marked);
    await_count(&awake, SLEEPING);
    for (int i = 0; i < SLEEPING; i++)
        pthread_join(threads[i].thread, NULL);
    CHECK_EQUAL(sleepers_take_seat(&beds), 0);
    sleepers_leave_seat(&beds, 0);
}

TEST(more_sleepers_than_seats_share_the_last) {
    for (int i = 0; i < SLEEPER_SEATS - 1; i++)
        CHECK_EQUAL(sleepers_take_seat(&beds), i);
    CHECK_EQUAL(sleepers_take_seat(&beds), SLEEPER_SEATS - 1);
    CHECK_EQUAL(sleepers_take_seat(&beds), SLEEPER_SEATS - 1);
    sleepers_leave_seat(&beds, SLEEPER_SEATS - 1);
    sleepers_leave_seat(&beds, 77);
    CHECK_EQUAL(sleepers_take_seat(&beds), 77);
    CHECK_EQUAL(sleepers_take_seat(&beds), SLEEPER_SEATS - 1);
}

TEST(the_clock_goes_on_and_chance_varies) {
    const clock_source *clock = clock_system();
    CHECK(clock->now_us(clock) > 0);
    CHECK(clock->unix_us(clock) > INT64_C(1600000000) * 1000000);
    CHECK(clock->random_bits(clock) != clock->random_bits(clock));
    CHECK(clock->skip_to == NULL);
}

int main(void) {
    return unit_main(NULL, NULL);
}
