/* SPDX-License-Identifier: BSD-3-Clause */
/* dispatch_test.c - calls that no thread waits for: how they become ready, when the descriptor is
 * readable, and what a dispatch takes. */
#include "threads_world.h"

#include <poll.h>

static bool is_readable(int fd, int timeout_ms) {
    struct pollfd source = {.fd = fd, .events = POLLIN};
    return poll(&source, 1, timeout_ms) == 1;
}

static int begin_with_fd(bool has_threads) {
    begin();
    if (!has_threads) loop_forbid_threads(the_loop);
    loop_lock(the_loop);
    CHECK(loop_start_background(the_loop));
    int fd = loop_dispatch_fd(the_loop);
    CHECK(fd >= 0);
    CHECK_EQUAL(loop_dispatch_fd(the_loop), fd);
    loop_unlock(the_loop);
    CHECK(!is_readable(fd, 0));
    return fd;
}

static void suspend(waiter *waiter) {
    loop_lock(the_loop);
    loop_suspend(the_loop, waiter);
    loop_unlock(the_loop);
}

static void make_ready(waiter *waiter) {
    loop_lock(the_loop);
    loop_ready(the_loop, waiter);
    loop_unlock(the_loop);
}

/* How many waiters a dispatch takes; each() is called, not locked, for each of them. */
static int dispatch(void (*each)(waiter *waiter)) {
    int count = 0;
    loop_lock(the_loop);
    if (!loop_begin_dispatch(the_loop)) count = -1;
    waiter *ready;
    while (count >= 0 && (ready = loop_next_ready(the_loop)) != NULL) {
        loop_unlock(the_loop);
        if (each != NULL) each(ready);
        loop_lock(the_loop);
        count++;
    }
    if (count >= 0) loop_end_dispatch(the_loop);
    loop_unlock(the_loop);
    return count;
}

/* -- ready */

TEST(a_waiter_that_becomes_ready_is_dispatched_once) {
    int fd = begin_with_fd(true);
    waiter one = {0};
    suspend(&one);
    CHECK_EQUAL(dispatch(NULL), 0);
    make_ready(&one);
    CHECK(is_readable(fd, 0));
    CHECK_EQUAL(dispatch(NULL), 1);
    CHECK(!is_readable(fd, 0));
    CHECK_EQUAL(dispatch(NULL), 0);
    end();
}

TEST(a_waiter_that_was_ready_before_it_is_suspended_is_dispatched) {
    int fd = begin_with_fd(true);
    waiter one = {0};
    make_ready(&one);
    CHECK(!is_readable(fd, 0));
    suspend(&one);
    CHECK(is_readable(fd, 0));
    CHECK_EQUAL(dispatch(NULL), 1);
    end();
}

TEST(a_waiter_that_is_taken_back_is_not_dispatched) {
    begin_with_fd(true);
    waiter one = {0}, other = {0};
    suspend(&one);
    suspend(&other);
    make_ready(&one);
    make_ready(&other);
    loop_lock(the_loop);
    loop_unsuspend(&one);
    loop_unlock(the_loop);
    CHECK_EQUAL(dispatch(NULL), 1);
    end();
}

static waiter taken_back;

static bool take_waiter_back(loop_io *io, bytes *output) {
    (void)io, (void)output;
    loop_unsuspend(&taken_back);
    return false;
}

/* As by another thread, which has the mutex while bytes are sent. */
TEST(a_waiter_that_is_taken_back_while_requests_are_sent_is_not_dispatched) {
    begin_with_fd(true);
    waiter one = {0};
    loop_io requests = {.take_output = take_waiter_back};
    suspend(&one);
    suspend(&taken_back);
    make_ready(&one);
    make_ready(&taken_back);
    loop_lock(the_loop);
    CHECK(loop_begin_dispatch(the_loop));
    loop_write(the_loop, &requests, 0);
    CHECK(loop_next_ready(the_loop) == &one);
    pause_ms(1); /* longer than requests are gathered */
    CHECK(loop_next_ready(the_loop) == NULL);
    loop_end_dispatch(the_loop);
    loop_unlock(the_loop);
    end();
}

TEST(ready_waiters_are_dispatched_in_their_order) {
    begin_with_fd(true);
    waiter waiters[3] = {{.is_ready = false}};
    for (int i = 0; i < 3; i++)
        suspend(&waiters[i]);
    make_ready(&waiters[2]);
    make_ready(&waiters[0]);
    make_ready(&waiters[2]);
    loop_lock(the_loop);
    CHECK(loop_begin_dispatch(the_loop));
    CHECK(loop_next_ready(the_loop) == &waiters[2]); /* once, though told twice */
    CHECK(loop_next_ready(the_loop) == &waiters[0]);
    CHECK(loop_next_ready(the_loop) == NULL);
    loop_end_dispatch(the_loop);
    loop_unsuspend(&waiters[1]);
    loop_unlock(the_loop);
    end();
}

TEST(a_ready_waiter_shows_when_the_descriptor_is_asked_for_later) {
    begin();
    waiter one = {0};
    suspend(&one);
    make_ready(&one);
    loop_lock(the_loop);
    int fd = loop_dispatch_fd(the_loop);
    loop_unlock(the_loop);
    CHECK(is_readable(fd, 0));
    CHECK_EQUAL(dispatch(NULL), 1);
    end();
}

static waiter again;

static void suspend_ready_again(waiter *waiter) {
    make_ready(waiter);
    suspend(waiter);
}

TEST(a_waiter_that_is_ready_again_at_once_is_for_the_next_dispatch) {
    int fd = begin_with_fd(true);
    again = (waiter){0};
    suspend(&again);
    make_ready(&again);
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(dispatch(suspend_ready_again), 1);
        CHECK(is_readable(fd, 0));
    }
    CHECK_EQUAL(dispatch(NULL), 1);
    CHECK(!is_readable(fd, 0));
    end();
}

static void dispatch_within(waiter *waiter) {
    (void)waiter;
    CHECK_EQUAL(dispatch(NULL), -1);
}

TEST(a_dispatch_within_a_dispatch_is_refused) {
    begin_with_fd(true);
    waiter one = {0};
    suspend(&one);
    make_ready(&one);
    CHECK_EQUAL(dispatch(dispatch_within), 1);
    end();
}

/* -- cancel */

static void a_canceled_waiter_is_ready(bool has_threads) {
    int fd = begin_with_fd(has_threads);
    cancel_switch cancel = 0;
    waiter one = {.cancel = &cancel}, other = {0};
    suspend(&one);
    suspend(&other);
    cancel_set(&cancel);
    loop_interrupt(the_loop);
    CHECK(is_readable(fd, NEVER));
    CHECK_EQUAL(dispatch(NULL), 1);
    CHECK(!is_readable(fd, 0));
    loop_lock(the_loop);
    loop_unsuspend(&other);
    loop_unlock(the_loop);
    end();
}

TEST(a_canceled_waiter_is_ready_with_threads) {
    a_canceled_waiter_is_ready(true);
}

TEST(a_canceled_waiter_is_ready_without_threads) {
    a_canceled_waiter_is_ready(false);
}

/* -- timers and descriptors */

static void a_timer_makes_a_suspended_waiter_ready(bool has_threads) {
    int fd = begin_with_fd(has_threads);
    sleeper one = {.timer.on_due = wake_sleeper};
    loop_lock(the_loop);
    loop_set_timer(the_loop, &one.timer, now_us() + 20000);
    loop_suspend(the_loop, &one.waiter);
    loop_unlock(the_loop);
    int count = 0;
    while (count == 0) {
        CHECK(is_readable(fd, NEVER));
        count = dispatch(NULL);
    }
    CHECK_EQUAL(count, 1);
    end();
}

TEST(a_timer_makes_a_suspended_waiter_ready_with_threads) {
    a_timer_makes_a_suspended_waiter_ready(true);
}

TEST(a_timer_makes_a_suspended_waiter_ready_without_threads) {
    a_timer_makes_a_suspended_waiter_ready(false);
}

TEST(a_ready_waiter_does_not_keep_a_thread_that_waits_busy) {
    int fd = begin_with_fd(false);
    sleeper self = {.timer.on_due = wake_sleeper};
    waiter one = {0};
    suspend(&one);
    make_ready(&one);
    struct timespec begin_cpu, end_cpu;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin_cpu);
    loop_lock(the_loop);
    loop_set_timer(the_loop, &self.timer, now_us() + 200000);
    loop_wait(the_loop, &self.waiter);
    loop_unlock(the_loop);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end_cpu);
    int64_t used_us = (end_cpu.tv_sec - begin_cpu.tv_sec) * INT64_C(1000000) +
                      (end_cpu.tv_nsec - begin_cpu.tv_nsec) / 1000;
    CHECK(used_us < 100000);
    CHECK(is_readable(fd, 0));
    CHECK_EQUAL(dispatch(NULL), 1);
    end();
}

/* The background thread naps while another thread polls. The nap is over by itself before long,
 * which is too late for calls that no thread waits for. */
TEST(the_last_thread_that_polls_ends_the_nap_if_there_are_suspended_waiters) {
    for (int is_any_suspended = 0; is_any_suspended < 2; is_any_suspended++) {
        begin();
        waiter last = {.is_ready = true}, suspended = {0};
        wakeup *nap = &the_loop->background.nap;
        the_loop->background.is_napping = true; /* though no thread is started */
        if (is_any_suspended) suspend(&suspended);
        unsigned seen = wakeup_seen(nap);
        loop_lock(the_loop);
        loop_wait(the_loop, &last);
        loop_unlock(the_loop);
        CHECK_EQUAL(wakeup_seen(nap) - seen, is_any_suspended);
        end();
    }
}

/* -- without threads */

static int works;

static void work(void *arg) {
    (void)arg;
    loop_lock(the_loop); /* a deadlock if the caller were locked */
    loop_unlock(the_loop);
    works++;
}

TEST(background_work_is_done_by_the_program) {
    int fd = begin_with_fd(false);
    works = 0;
    loop_set_background_work(the_loop, work, NULL);
    loop_do_background_work(the_loop);
    CHECK_EQUAL(works, 0);
    loop_lock(the_loop);
    loop_wake_background(the_loop);
    loop_unlock(the_loop);
    CHECK(is_readable(fd, 0));
    CHECK_EQUAL(dispatch(NULL), 0);
    loop_do_background_work(the_loop);
    CHECK_EQUAL(works, 1);
    end();
}

/* -- without threads, and a thread of the program waits */

TEST(a_thread_that_waits_and_does_not_run_holds_up_no_dispatch) {
    int fd = begin_with_fd(false), count = 0;
    sleeper waiting = {0}, one = {.timer.on_due = wake_sleeper};
    start_sleepers(&waiting, 1);
    hold_up(&waiting);
    loop_lock(the_loop);
    loop_set_timer(the_loop, &one.timer, now_us());
    loop_suspend(the_loop, &one.waiter);
    loop_unlock(the_loop);
    for (int i = 0; i < 100 && count == 0; i++) {
        CHECK(is_readable(fd, NEVER));
        count = dispatch(NULL);
    }
    CHECK_EQUAL(count, 1);
    CHECK(!is_readable(fd, 0));
    let_run();
    make_ready(&waiting.waiter);
    join_sleepers(&waiting, 1);
    end();
}

enum { TURNS = 200 };

static void *wait_often(void *arg) {
    sleeper *sleeper = arg;
    loop_lock(the_loop);
    while (sleeper->returned < TURNS) {
        loop_wait(the_loop, &sleeper->waiter);
        sleeper->returned++;
    }
    loop_unlock(the_loop);
    return NULL;
}

static void no_dispatch_takes_the_wakeup_of_a_thread_that_waits(bool is_cancel) {
    begin_with_fd(false);
    sleeper waiting = {0};
    waiting.waiter.cancel = &waiting.cancel;
    pthread_create(&waiting.thread, NULL, wait_often, &waiting);
    for (int i = 0; i < TURNS; i++) {
        if (is_cancel) {
            cancel_set(&waiting.cancel);
            loop_interrupt(the_loop);
        } else {
            make_ready(&waiting.waiter);
        }
        while (count_returned(&waiting, 1) <= i)
            dispatch(NULL);
        atomic_store(&waiting.cancel, 0);
    }
    join_sleepers(&waiting, 1);
    end();
}

TEST(no_dispatch_takes_a_wakeup_by_ready) {
    no_dispatch_takes_the_wakeup_of_a_thread_that_waits(false);
}

TEST(no_dispatch_takes_a_wakeup_by_cancel) {
    no_dispatch_takes_the_wakeup_of_a_thread_that_waits(true);
}

/* -- another thread makes waiters ready */

enum { ROUNDS = 2000 };
static waiter shared_waiter;
static atomic_int signals;

static void *signal_often(void *arg) {
    for (int i = 0; i < ROUNDS; i++) {
        while (atomic_load(&signals) != i)
            sched_yield();
        make_ready(&shared_waiter);
    }
    return arg;
}

static void suspend_and_count(waiter *waiter) {
    suspend(waiter);
    atomic_fetch_add(&signals, 1);
}

TEST(no_wakeup_is_lost_between_two_dispatches) {
    int fd = begin_with_fd(true), count = 0;
    shared_waiter = (waiter){0};
    atomic_store(&signals, 0);
    suspend(&shared_waiter);
    pthread_t other;
    pthread_create(&other, NULL, signal_often, NULL);
    while (count < ROUNDS) {
        CHECK(is_readable(fd, NEVER));
        count += dispatch(suspend_and_count);
    }
    pthread_join(other, NULL);
    loop_lock(the_loop);
    loop_unsuspend(&shared_waiter);
    loop_unlock(the_loop);
    end();
}

int main(void) {
    return unit_main(NULL, NULL);
}
