/* SPDX-License-Identifier: BSD-3-Clause */
/* thread_test.c - one thread sleeps, another wakes it. */
#define _GNU_SOURCE /* pthread_setattr_default_np() */
#include "base/platform.h"

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
    EACH_ROW(i, faults)
        CHECK_EQUAL(sigismember(&blocked, faults[i]), 0);
    EACH_ROW(i, others)
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

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool is_asleep;

static void *sleep_until_marked(void *arg) {
    wakeup *wakeup = arg;
    pthread_mutex_lock(&mutex);
    unsigned seen = wakeup_seen(wakeup);
    is_asleep = true;
    pthread_mutex_unlock(&mutex);
    while (wakeup_seen(wakeup) == seen)
        wakeup_wait(wakeup, seen, -1);
    return NULL;
}

TEST(a_thread_is_marked_with_the_mutex_and_woken_without) {
    pthread_t thread;
    CHECK(thread_start(&thread, sleep_until_marked, &bell));
    pthread_mutex_lock(&mutex);
    for (; !is_asleep; pthread_mutex_lock(&mutex)) {
        pthread_mutex_unlock(&mutex);
        sched_yield();
    }
    wakeup_mark(&bell);
    pthread_mutex_unlock(&mutex);
    wakeup_wake(&bell);
    pthread_join(thread, NULL);
}

int main(void) {
    return unit_main(NULL, NULL);
}
