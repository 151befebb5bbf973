/* SPDX-License-Identifier: BSD-3-Clause */
/* loop_background_test.c - the background thread, which makes turns while nobody waits. */
#include "threads_world.h"

static pthread_t main_thread;

static void start_background(void) {
    main_thread = pthread_self();
    loop_lock(the_loop);
    CHECK(loop_start_background(the_loop));
    CHECK(loop_start_background(the_loop));
    loop_unlock(the_loop);
}

static bool is_background(void) {
    return !pthread_equal(main_thread, pthread_self());
}

/* Counts what happens, and in which thread. Locked. */
typedef struct tally {
    loop_timer timer;
    loop_task task;
    loop_io io;
    int far_fd;
    int count, in_background;
} tally;

static void count_call(tally *tally) {
    tally->count++;
    tally->in_background += is_background();
}

static void count_timer(loop_timer *timer) {
    count_call(container_of(timer, tally, timer));
}

static void count_bytes(loop_io *io, uint32_t ready) {
    (void)ready;
    char bytes[16];
    ssize_t count;
    while ((count = recv(io->fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
        for (ssize_t i = 0; i < count; i++)
            count_call(container_of(io, tally, io));
}

static void await_count(tally *tally, int expected) {
    for (int count = 0; count < expected; pause_ms(1)) {
        loop_lock(the_loop);
        count = tally->count;
        CHECK(count <= expected);
        loop_unlock(the_loop);
    }
}

/* -- the background thread */

TEST(timers_go_off_while_nobody_waits) {
    tally tally = {.timer.on_due = count_timer};
    start_background();
    for (int i = 1; i <= 5; i++) {
        loop_lock(the_loop);
        loop_set_timer(the_loop, &tally.timer, now_us() + 5000);
        loop_unlock(the_loop);
        await_count(&tally, i);
    }
    CHECK_EQUAL(tally.in_background, 5);
}

TEST(timers_go_off_while_a_thread_that_polls_does_not_run) {
    tally tally = {.timer.on_due = count_timer};
    sleeper sleeper = {0};
    start_background();
    start_sleepers(&sleeper, 1);
    hold_up(&sleeper);
    for (int i = 1; i <= 5; i++) {
        loop_lock(the_loop);
        loop_set_timer(the_loop, &tally.timer, now_us() + 5000);
        loop_ready(the_loop, &sleeper.waiter);
        loop_unlock(the_loop);
        await_count(&tally, i);
    }
    CHECK_EQUAL(tally.in_background, 5);
    let_run();
    await_returned(&sleeper, 1, 1);
    join_sleepers(&sleeper, 1);
}

TEST(a_timer_of_before_the_background_thread_goes_off) {
    tally tally = {.timer.on_due = count_timer};
    loop_lock(the_loop);
    loop_set_timer(the_loop, &tally.timer, now_us() + 5000);
    loop_unlock(the_loop);
    start_background();
    await_count(&tally, 1);
}

TEST(bytes_are_told_of_while_nobody_waits) {
    tally tally = {0};
    start_background();
    loop_lock(the_loop);
    open_pipe(&tally.io, &tally.far_fd, count_bytes);
    CHECK(loop_watch(the_loop, &tally.io, EPOLLIN | EPOLLET));
    loop_unlock(the_loop);
    for (int i = 1; i <= 5; i++) {
        feed(tally.far_fd);
        await_count(&tally, i);
    }
    CHECK_EQUAL(tally.in_background, 5);
    loop_lock(the_loop);
    loop_close(the_loop, &tally.io);
    loop_unlock(the_loop);
    close(tally.far_fd);
}

TEST(the_background_thread_takes_over_when_the_last_sleeper_leaves) {
    tally tally = {.timer.on_due = count_timer};
    start_background();
    for (int i = 1; i <= 5; i++) {
        sleeper one = {0};
        give_sleepers_pipes(&one, 1);
        start_sleepers(&one, 1);
        loop_lock(the_loop);
        loop_set_timer(the_loop, &tally.timer, now_us() + 50000);
        loop_unlock(the_loop);
        feed(one.far_fd);
        await_returned(&one, 1, 1);
        await_count(&tally, i);
        join_sleepers(&one, 1);
        close_pipes(&one, 1);
    }
    CHECK_EQUAL(tally.in_background, 5);
}

TEST(a_sleeper_is_served_next_to_the_background_thread) {
    start_background();
    for (int i = 0; i < 20; i++) {
        sleeper self = {.timer.on_due = wake_sleeper};
        loop_lock(the_loop);
        loop_set_timer(the_loop, &self.timer, now_us() + 1000);
        loop_wait(the_loop, &self.waiter);
        loop_unlock(the_loop);
    }
}

static struct { atomic_int count, in_background; } worked;

static void work(void *arg) {
    CHECK(arg == &worked);
    loop_lock(the_loop); /* a deadlock if the caller were locked */
    loop_unlock(the_loop);
    worked.in_background += is_background();
    worked.count++;
}

TEST(the_work_of_the_background_thread_is_done_when_it_is_woken) {
    worked.count = worked.in_background = 0;
    loop_set_background_work(the_loop, work, &worked);
    start_background();
    sleeper one = {0};
    for (int is_led = 0; is_led < 2; is_led++) {
        if (is_led) start_sleepers(&one, 1);
        for (int i = 0; i < 5; i++) {
            int before = worked.count;
            loop_wake_background(the_loop);
            while (worked.count == before)
                pause_ms(1);
        }
    }
    CHECK_EQUAL(worked.in_background, worked.count);
    loop_lock(the_loop);
    loop_ready(the_loop, &one.waiter);
    loop_unlock(the_loop);
    join_sleepers(&one, 1);
}

TEST(a_background_thread_with_nothing_to_do_sleeps) {
    worked.count = 0;
    loop_set_background_work(the_loop, work, &worked);
    start_background();
    sleeper one = {0};
    give_sleepers_pipes(&one, 1);
    feed(one.far_fd);
    loop_wake_background(the_loop);
    pause_ms(20);
    int before = worked.count;
    pause_ms(50);
    CHECK(worked.count - before < 5);
    close_pipes(&one, 1);
}

TEST(a_loop_with_a_background_thread_can_be_freed_at_any_time) {
    for (int i = 0; i < 50; i++) {
        unit_restart();
        start_background();
        if (i % 2 == 0) pause_ms(1);
    }
}

int main(void) {
    return unit_main(begin, end);
}
