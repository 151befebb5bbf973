/* SPDX-License-Identifier: BSD-3-Clause */
/* loop_background_test.c - the background thread, which makes turns while nobody waits; and brief
 * reads, by which the only thread that waits reads the only descriptor. */
#include "threads_world.h"

#include <fcntl.h>

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

/* -- brief reads */

static struct {
    int told_of_bytes, told_of_events;
    char last;
    waiter waiter;
    loop_io io;
    int far_fd;
} brief;

static void take_bytes(loop_io *io, const char *bytes, ssize_t count, int fault) {
    (void)io, (void)fault;
    if (count <= 0) return;
    brief.told_of_bytes++;
    brief.last = bytes[count - 1];
    loop_ready(the_loop, &brief.waiter);
}

static void take_event(loop_io *io, uint32_t ready) {
    (void)ready;
    char bytes[16];
    while (recv(io->fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
        brief.told_of_events++;
        loop_ready(the_loop, &brief.waiter);
    }
}

static void begin_brief(void) {
    memset(&brief, 0, sizeof(brief));
    loop_lock(the_loop);
    open_pipe(&brief.io, &brief.far_fd, take_event);
    CHECK(loop_watch(the_loop, &brief.io, EPOLLIN | EPOLLET));
    brief.io.on_bytes = take_bytes;
    loop_expect(the_loop, &brief.io, true);
}

static void end_brief(void) {
    if (brief.io.fd >= 0) loop_close(the_loop, &brief.io);
    close(brief.far_fd);
    loop_unlock(the_loop);
}

TEST(an_expected_reply_is_read_without_polling) {
    begin_brief();
    feed(brief.far_fd);
    loop_wait(the_loop, &brief.waiter);
    CHECK_EQUAL(brief.told_of_bytes, 1);
    CHECK_EQUAL(brief.last, 'x');
    CHECK_EQUAL(brief.told_of_events, 0);
    end_brief();
}

TEST(a_reply_that_is_expected_no_more_is_polled_for) {
    begin_brief();
    loop_expect(the_loop, &brief.io, false);
    feed(brief.far_fd);
    loop_wait(the_loop, &brief.waiter);
    CHECK_EQUAL(brief.told_of_bytes, 0);
    CHECK_EQUAL(brief.told_of_events, 1);
    end_brief();
}

TEST(other_descriptors_are_heard_next_to_an_expected_reply) {
    begin_brief();
    sleeper self = {0};
    open_pipe(&self.io, &self.far_fd, read_and_wake);
    CHECK(loop_watch(the_loop, &self.io, EPOLLIN | EPOLLET));
    feed(self.far_fd);
    loop_wait(the_loop, &self.waiter);
    CHECK_EQUAL(brief.told_of_bytes + brief.told_of_events, 0);
    loop_close(the_loop, &self.io);
    close(self.far_fd);
    end_brief();
}

TEST(timers_go_off_next_to_an_expected_reply) {
    begin_brief();
    sleeper self = {.timer.on_due = wake_sleeper};
    int64_t start_us = now_us();
    loop_set_timer(the_loop, &self.timer, start_us + 20000);
    loop_wait(the_loop, &self.waiter);
    CHECK(now_us() - start_us >= 20000);
    end_brief();
}

static void *close_expected(void *arg) {
    (void)arg;
    pause_ms(20);
    loop_lock(the_loop);
    int fd = brief.io.fd;
    loop_close(the_loop, &brief.io);
    CHECK(fcntl(fd, F_GETFD) >= 0); /* its number is not free before the reader is done */
    loop_unlock(the_loop);
    char byte;
    CHECK_EQUAL(recv(brief.far_fd, &byte, 1, 0), 0);
    loop_lock(the_loop);
    loop_ready(the_loop, &brief.waiter);
    loop_unlock(the_loop);
    return NULL;
}

TEST(a_descriptor_can_be_closed_while_it_is_read) {
    begin_brief();
    pthread_t closer;
    CHECK(pthread_create(&closer, NULL, close_expected, NULL) == 0);
    loop_wait(the_loop, &brief.waiter);
    CHECK_EQUAL(brief.told_of_bytes + brief.told_of_events, 0);
    loop_unlock(the_loop);
    pthread_join(closer, NULL);
    loop_lock(the_loop);
    end_brief();
}

int main(void) {
    return unit_main(begin, end);
}
