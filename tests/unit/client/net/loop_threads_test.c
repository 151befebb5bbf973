/* SPDX-License-Identifier: BSD-3-Clause */
/* loop_threads_test.c - one thread or several wait: who makes turns, who is woken. */
#include "threads_world.h"

#include "net/loop_state.h"

#include <signal.h>

enum { THREADS = 5, ROUNDS = 300 };

/* -- one thread waits */

TEST(a_timer_goes_off_in_real_time) {
    sleeper self = {.timer.on_due = wake_sleeper};
    int64_t start_us = now_us();
    loop_lock(the_loop);
    loop_set_timer(the_loop, &self.timer, start_us + 30000);
    loop_wait(the_loop, &self.waiter);
    loop_unlock(the_loop);
    CHECK(now_us() - start_us >= 30000);
}

TEST(a_timer_that_is_set_earlier_wakes_the_sleeper) {
    sleeper one = {.timer.on_due = wake_sleeper};
    loop_lock(the_loop);
    loop_set_timer(the_loop, &one.timer, now_us() + LATE_MS * 1000);
    loop_unlock(the_loop);
    start_sleepers(&one, 1);
    CHECK_EQUAL(count_returned(&one, 1), 0);
    loop_lock(the_loop);
    loop_set_timer(the_loop, &one.timer, now_us() + 10000);
    loop_unlock(the_loop);
    await_returned(&one, 1, 1);
    join_sleepers(&one, 1);
}

static int task_runs;

static void count_run(loop_task *task) {
    (void)task;
    task_runs++;
}

TEST(a_task_of_another_thread_runs_while_the_sleeper_sleeps) {
    sleeper one = {0};
    loop_task task = {.run = count_run};
    start_sleepers(&one, 1);
    task_runs = 0;
    loop_lock(the_loop);
    loop_defer(the_loop, &task);
    loop_unlock(the_loop);
    for (bool is_run = false; !is_run; pause_ms(1)) {
        loop_lock(the_loop);
        is_run = task_runs > 0;
        loop_unlock(the_loop);
    }
    loop_lock(the_loop);
    CHECK_EQUAL(task_runs, 1);
    loop_ready(the_loop, &one.waiter);
    loop_unlock(the_loop);
    join_sleepers(&one, 1);
}

TEST(a_sleeper_is_woken_by_another_thread) {
    sleeper one = {0};
    start_sleepers(&one, 1);
    CHECK_EQUAL(count_returned(&one, 1), 0);
    loop_lock(the_loop);
    loop_ready(the_loop, &one.waiter);
    loop_unlock(the_loop);
    await_returned(&one, 1, 1);
    join_sleepers(&one, 1);
}

static sleeper *signaled;

static void interrupt_by_signal(int number) {
    (void)number;
    cancel_set(&signaled->cancel);
    loop_interrupt(the_loop);
}

TEST(a_signal_handler_can_cancel_a_wait) {
    sleeper self = {0};
    self.waiter.cancel = &self.cancel;
    signaled = &self;
    signal(SIGUSR1, interrupt_by_signal);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_t timer;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec soon = {.it_value = {.tv_nsec = 20000000}};
    timer_settime(timer, 0, &soon, NULL);
    loop_lock(the_loop);
    loop_wait(the_loop, &self.waiter);
    loop_unlock(the_loop);
    CHECK(cancel_is_seen(&self.cancel, 0));
    timer_delete(timer);
    signal(SIGUSR1, SIG_DFL);
}

/* -- several threads wait */

TEST(each_sleeper_is_woken_and_no_other) {
    sleeper sleepers[THREADS] = {0};
    start_sleepers(sleepers, THREADS);
    const int order[THREADS] = {2, 0, 4, 1, 3};
    for (int i = 0; i < THREADS; i++) {
        loop_lock(the_loop);
        loop_ready(the_loop, &sleepers[order[i]].waiter);
        loop_unlock(the_loop);
        await_returned(sleepers, THREADS, i + 1);
        CHECK_EQUAL(count_returned(&sleepers[order[i]], 1), 1);
    }
    join_sleepers(sleepers, THREADS);
}

/* Whoever makes turns for the others is woken first, again and again. */
TEST(the_lead_is_passed_on) {
    for (int is_backward = 0; is_backward < 2; is_backward++) {
        unit_restart();
        sleeper sleepers[THREADS] = {0};
        give_sleepers_pipes(sleepers, THREADS);
        start_sleepers(sleepers, THREADS);
        for (int i = 0; i < THREADS; i++) {
            sleeper *next = &sleepers[is_backward ? THREADS - 1 - i : i];
            feed(next->far_fd);
            await_returned(sleepers, THREADS, i + 1);
            CHECK_EQUAL(count_returned(next, 1), 1);
        }
        join_sleepers(sleepers, THREADS);
        close_pipes(sleepers, THREADS);
    }
}

TEST(all_sleepers_are_woken_at_once) {
    static const int counts[] = {THREADS, LOOP_WAKE_MAX + 2}; /* one polls: too many by one */
    for (int i = 0; i < 2; i++) {
        sleeper sleepers[LOOP_WAKE_MAX + 2] = {0};
        start_sleepers(sleepers, counts[i]);
        loop_lock(the_loop);
        for (int j = 0; j < counts[i]; j++)
            loop_ready(the_loop, &sleepers[j].waiter);
        loop_unlock(the_loop);
        await_returned(sleepers, counts[i], counts[i]);
        join_sleepers(sleepers, counts[i]);
    }
}

TEST(a_canceled_sleeper_returns_and_the_others_go_on) {
    sleeper sleepers[THREADS] = {0};
    give_sleepers_pipes(sleepers, THREADS);
    start_sleepers(sleepers, THREADS);
    for (int i = 0; i < THREADS - 1; i++) {
        cancel_set(&sleepers[i].cancel);
        loop_interrupt(the_loop);
        await_returned(sleepers, THREADS, i + 1);
        CHECK_EQUAL(count_returned(&sleepers[i], 1), 1);
    }
    feed(sleepers[THREADS - 1].far_fd);
    await_returned(sleepers, THREADS, THREADS);
    join_sleepers(sleepers, THREADS);
    close_pipes(sleepers, THREADS);
}

/* -- requests are gathered */

static pthread_t sender;
static int send_count;
static int still_woken; /* when it was sent */

static bool note_sender(loop_io *io, bytes *output) {
    (void)io;
    (void)output;
    sender = pthread_self();
    still_woken = (int)the_loop->gathering.woken;
    send_count++;
    return false;
}

enum { WOKEN = 6, UNDER_WAY = 9, PIECE = (WOKEN + UNDER_WAY) / 3, LEAST_PIECE = UNDER_WAY / 3 };

/* So late that the timerfd of the loop, which runs on the real clock, never goes off. */
static int64_t stopped_now_us(const clock_source *clock) {
    (void)clock;
    return INT64_C(1) << 50;
}

static const clock_source stopped_clock = {.now_us = stopped_now_us};

/* The first sleeper polls; the others are woken, and meanwhile this thread writes. Time stands
 * still: threads that get no processor do not end the gathering. */
static void write_while_threads_are_woken(int writes) {
    the_loop->clock = &stopped_clock;
    sleeper sleepers[1 + WOKEN] = {0};
    start_sleepers(sleepers, 1 + WOKEN);
    loop_io io = {.fd = -1, .take_output = note_sender};
    send_count = 0;
    loop_lock(the_loop);
    for (int i = 1; i <= WOKEN; i++)
        loop_ready(the_loop, &sleepers[i].waiter);
    for (int i = 0; i < writes; i++)
        loop_write(the_loop, &io, UNDER_WAY);
    loop_unlock(the_loop);
    await_returned(sleepers, 1 + WOKEN, WOKEN);
    CHECK_EQUAL(send_count, 1);
    loop_lock(the_loop);
    loop_ready(the_loop, &sleepers[0].waiter);
    loop_unlock(the_loop);
    join_sleepers(sleepers, 1 + WOKEN);
}

TEST(the_last_woken_thread_sends_what_was_gathered) {
    write_while_threads_are_woken(LEAST_PIECE - 1);
    CHECK(!pthread_equal(sender, pthread_self()));
    CHECK_EQUAL(still_woken, 0);
}

TEST(a_piece_is_sent_at_once) {
    write_while_threads_are_woken(PIECE);
    CHECK(pthread_equal(sender, pthread_self()));
    CHECK_EQUAL(still_woken, WOKEN);
}

static int await_sends(void) {
    int count = 0;
    while (count == 0) {
        pause_ms(1);
        loop_lock(the_loop);
        count = send_count;
        loop_give_mutex(the_loop); /* sends nothing by itself */
    }
    return count;
}

TEST(a_woken_thread_that_does_not_run_holds_up_no_request) {
    sleeper sleepers[1 + WOKEN] = {0};
    start_sleepers(sleepers, 1 + WOKEN);
    loop_io io = {.fd = -1, .take_output = note_sender};
    send_count = 0;
    hold_up(&sleepers[1]);
    loop_lock(the_loop);
    for (int i = 1; i <= WOKEN; i++)
        loop_ready(the_loop, &sleepers[i].waiter);
    loop_write(the_loop, &io, UNDER_WAY);
    loop_unlock(the_loop);
    CHECK_EQUAL(await_sends(), 1);
    let_run();
    await_returned(sleepers, 1 + WOKEN, WOKEN);
    loop_lock(the_loop);
    loop_ready(the_loop, &sleepers[0].waiter);
    loop_unlock(the_loop);
    join_sleepers(sleepers, 1 + WOKEN);
}

/* -- the thread that polls spins */

/* Threads that wait; the one that polls is made to poll again and again. */
static spin spin_of_waiting_threads(int count) {
    sleeper sleepers[2] = {0};
    start_sleepers(sleepers, count);
    for (int i = 0; i < 100; i++) {
        loop_interrupt(the_loop);
        pause_ms(1); /* longer than a spin */
    }
    loop_lock(the_loop);
    for (int i = 0; i < count; i++)
        loop_ready(the_loop, &sleepers[i].waiter);
    loop_unlock(the_loop);
    join_sleepers(sleepers, count);
    return the_loop->watched.spin;
}

/* A thread that gets no processor meanwhile has not polled often enough: then, again. */
TEST(one_of_several_threads_spins) {
    while (spin_of_waiting_threads(2).pause_us == 0)
        ;
}

TEST(a_thread_that_waits_alone_does_not_spin) {
    spin seen = spin_of_waiting_threads(1);
    CHECK_EQUAL(seen.pause_us, 0);
    CHECK_EQUAL(seen.credit, 0);
}

static void *sleep_often(void *arg) {
    sleeper *sleeper = arg;
    unsigned seed = (unsigned)(uintptr_t)sleeper;
    for (int i = 0; i < ROUNDS; i++) {
        loop_lock(the_loop);
        loop_set_timer(the_loop, &sleeper->timer, now_us() + rand_r(&seed) % 500);
        loop_wait(the_loop, &sleeper->waiter);
        sleeper->returned += !heap_has(&sleeper->timer.node);
        loop_unlock(the_loop);
    }
    return NULL;
}

TEST(many_short_waits_of_many_threads_end_each) {
    for (int has_background = 0; has_background < 2; has_background++) {
        unit_restart();
        sleeper sleepers[THREADS] = {0};
        loop_lock(the_loop);
        if (has_background) CHECK(loop_start_background(the_loop));
        loop_unlock(the_loop);
        for (int i = 0; i < THREADS; i++) {
            sleepers[i].timer.on_due = wake_sleeper;
            if (pthread_create(&sleepers[i].thread, NULL, sleep_often, &sleepers[i]) != 0) abort();
        }
        for (int i = 0; i < ROUNDS; i++)
            loop_interrupt(the_loop);
        join_sleepers(sleepers, THREADS);
        CHECK_EQUAL(count_returned(sleepers, THREADS), THREADS * ROUNDS);
    }
}

int main(void) {
    return unit_main(begin, end);
}
