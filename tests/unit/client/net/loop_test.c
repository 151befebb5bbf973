/* SPDX-License-Identifier: BSD-3-Clause */
/* loop_test.c - timers, tasks and one waiter, under fake time. Descriptors: loop_io_test.c. Real
 * time: loop_threads_test.c and loop_background_test.c. */
#include "net_world.h"

enum { MANY = 100 };

/* A timer and a task that write their name into the journal. */
typedef struct bell {
    loop_timer timer;
    loop_task task;
    const char *name;
    int count;
    int64_t rung_us;
    struct bell *other; /* see ring_and_set(), run_and_defer() */
} bell;

static void ring(loop_timer *timer) {
    bell *bell = container_of(timer, struct bell, timer);
    bell->count++;
    bell->rung_us = elapsed_us();
    note(bell->name);
}

static void run(loop_task *task) {
    bell *bell = container_of(task, struct bell, task);
    bell->count++;
    bell->rung_us = elapsed_us();
    note(bell->name);
}

static bell new_bell(const char *name) {
    return (bell){.name = name, .timer.on_due = ring, .task.run = run};
}

static void set(bell *bell, int64_t after_us) {
    loop_set_timer(world.loop, &bell->timer, START_US + after_us);
}

/* -- timers */

TEST(timers_go_off_in_the_order_of_their_times) {
    bell a = new_bell("a"), b = new_bell("b"), c = new_bell("c");
    set(&b, 2000);
    set(&c, 3000);
    set(&a, 1000);
    pass_ms(10);
    CHECK_TEXT(world.journal, "a, b, c");
}

TEST(a_timer_goes_off_at_its_exact_time) {
    bell a = new_bell("a"), b = new_bell("b");
    set(&a, 1);
    set(&b, 1234567);
    pass_us(1234566);
    CHECK_EQUAL(a.rung_us, 1);
    CHECK_EQUAL(b.count, 0);
    pass_us(1);
    CHECK_EQUAL(b.rung_us, 1234567);
}

TEST(a_timer_goes_off_once) {
    bell a = new_bell("a");
    set(&a, 5);
    pass_ms(1000);
    CHECK_EQUAL(a.count, 1);
}

TEST(a_timer_that_is_moved_goes_off_at_the_new_time_only) {
    bell sooner = new_bell("sooner"), later = new_bell("later");
    set(&sooner, 5000);
    set(&sooner, 1000);
    set(&later, 1000);
    set(&later, 5000);
    pass_ms(20);
    CHECK_TEXT(world.journal, "sooner, later");
    CHECK_EQUAL(sooner.rung_us, 1000);
    CHECK_EQUAL(later.rung_us, 5000);
}

TEST(a_timer_that_is_cleared_does_not_go_off) {
    bell a = new_bell("a"), b = new_bell("b"), c = new_bell("c");
    set(&a, 1000);
    set(&b, 1000);
    set(&c, 1000);
    loop_clear_timer(world.loop, &a.timer);
    loop_set_timer(world.loop, &b.timer, DEADLINE_NEVER);
    pass_ms(10);
    CHECK_TEXT(world.journal, "c");
}

TEST(clearing_a_timer_that_is_not_set_does_nothing) {
    bell a = new_bell("a");
    loop_clear_timer(world.loop, &a.timer);
    set(&a, 1);
    pass_ms(1);
    loop_clear_timer(world.loop, &a.timer);
    CHECK_EQUAL(a.count, 1);
}

TEST(a_timer_of_the_past_goes_off_at_once) {
    bell a = new_bell("a");
    set(&a, -5000000);
    settle();
    CHECK_EQUAL(a.count, 1);
}

static void ring_and_set(loop_timer *timer) {
    bell *bell = container_of(timer, struct bell, timer);
    ring(timer);
    if (bell->count < 3) set(bell->other, elapsed_us() + 1000);
}

TEST(a_timer_can_set_itself_again) {
    bell a = new_bell("a");
    a.timer.on_due = ring_and_set;
    a.other = &a;
    set(&a, 1000);
    pass_ms(100);
    CHECK_EQUAL(a.count, 3);
    CHECK_EQUAL(a.rung_us, 3000);
}

static void ring_and_clear(loop_timer *timer) {
    bell *bell = container_of(timer, struct bell, timer);
    ring(timer);
    loop_clear_timer(world.loop, &bell->other->timer);
}

TEST(a_timer_can_clear_another_that_is_due_as_well) {
    bell a = new_bell("a"), b = new_bell("b");
    a.timer.on_due = b.timer.on_due = ring_and_clear;
    a.other = &b;
    b.other = &a;
    set(&a, 1000);
    set(&b, 1000);
    pass_ms(10);
    CHECK_EQUAL(a.count + b.count, 1);
}

TEST(many_timers_go_off_in_order) {
    static bell bells[MANY];
    for (int i = 0; i < MANY; i++) {
        bells[i] = new_bell("");
        set(&bells[i], unit_random_within(1, 1000000));
    }
    for (int i = 0; i < MANY; i += 3)
        loop_clear_timer(world.loop, &bells[i].timer);
    for (int64_t now_us = 0; now_us <= 1000000; now_us += 1000) {
        for (int i = 0; i < MANY; i++) {
            bool is_due = i % 3 != 0 && bells[i].timer.node.due_us - START_US <= elapsed_us();
            CHECK_EQUAL(bells[i].count, is_due);
        }
        pass_ms(1);
    }
}

/* -- tasks */

TEST(a_task_runs_before_time_passes) {
    bell timer = new_bell("timer"), task = new_bell("task");
    set(&timer, 1);
    loop_defer(world.loop, &task.task);
    CHECK_EQUAL(task.count, 0);
    pass_ms(1);
    CHECK_TEXT(world.journal, "task, timer");
    CHECK_EQUAL(task.rung_us, 0);
}

TEST(tasks_run_in_the_order_in_which_they_were_deferred) {
    bell a = new_bell("a"), b = new_bell("b"), c = new_bell("c");
    loop_defer(world.loop, &b.task);
    loop_defer(world.loop, &a.task);
    loop_defer(world.loop, &c.task);
    settle();
    CHECK_TEXT(world.journal, "b, a, c");
}

TEST(a_task_runs_once_however_often_it_is_deferred) {
    bell a = new_bell("a");
    for (int i = 0; i < 5; i++)
        loop_defer(world.loop, &a.task);
    settle();
    CHECK_EQUAL(a.count, 1);
    loop_defer(world.loop, &a.task);
    settle();
    CHECK_EQUAL(a.count, 2);
}

TEST(a_task_that_is_taken_back_does_not_run) {
    bell a = new_bell("a"), b = new_bell("b");
    loop_defer(world.loop, &a.task);
    loop_defer(world.loop, &b.task);
    list_remove(&a.task.node);
    settle();
    CHECK_TEXT(world.journal, "b");
}

static void run_and_defer(loop_task *task) {
    bell *bell = container_of(task, struct bell, task);
    run(task);
    if (bell->other != NULL) loop_defer(world.loop, &bell->other->task);
}

TEST(a_task_of_a_task_runs_before_time_passes) {
    bell timer = new_bell("timer"), first = new_bell("first"), second = new_bell("second");
    first.task.run = run_and_defer;
    first.other = &second;
    set(&timer, 1);
    loop_defer(world.loop, &first.task);
    pass_ms(1);
    CHECK_TEXT(world.journal, "first, second, timer");
}

static void ring_and_defer(loop_timer *timer) {
    bell *bell = container_of(timer, struct bell, timer);
    ring(timer);
    loop_defer(world.loop, &bell->other->task);
}

TEST(a_task_of_a_timer_runs_before_time_passes) {
    bell a = new_bell("a"), task = new_bell("task"), late = new_bell("late");
    a.timer.on_due = ring_and_defer;
    a.other = &task;
    set(&a, 1000);
    set(&late, 1001);
    pass_ms(10);
    CHECK_TEXT(world.journal, "a, task, late");
    CHECK_EQUAL(task.rung_us, 1000);
}

TEST(all_tasks_run_before_the_mutex_is_given_back) {
    bell first = new_bell("first"), second = new_bell("second"), third = new_bell("third");
    first.task.run = run_and_defer;
    first.other = &third;
    loop_defer(world.loop, &first.task);
    loop_defer(world.loop, &second.task);
    loop_unlock(world.loop);
    loop_lock(world.loop);
    CHECK_TEXT(world.journal, "first, second, third");
}

/* -- a waiter */

TEST(a_waiter_that_is_ready_does_not_wait) {
    waiter waiter = {0};
    bell late = new_bell("late");
    set(&late, 1000);
    loop_ready(world.loop, &waiter);
    loop_wait(world.loop, &waiter);
    CHECK_EQUAL(late.count, 0);
    CHECK(!waiter.is_ready);
    loop_clear_timer(world.loop, &late.timer);
}

TEST(a_canceled_waiter_does_not_wait) {
    cancel_switch cancel = 1;
    waiter waiter = {.cancel = &cancel};
    bell late = new_bell("late");
    set(&late, 1000);
    loop_wait(world.loop, &waiter);
    CHECK_EQUAL(late.count, 0);
    loop_clear_timer(world.loop, &late.timer);
}

static waiter *awaited;

static void ring_and_ready(loop_timer *timer) {
    ring(timer);
    loop_ready(world.loop, awaited);
}

TEST(a_waiter_waits_until_a_timer_makes_it_ready) {
    waiter waiter = {0};
    bell a = new_bell("a"), b = new_bell("b");
    b.timer.on_due = ring_and_ready;
    awaited = &waiter;
    set(&a, 1000);
    set(&b, 2000);
    world.until_us = START_US + 10000;
    loop_wait(world.loop, &waiter);
    CHECK_TEXT(world.journal, "a, b");
    CHECK_EQUAL(elapsed_us(), 2000);
}

TEST(to_be_ready_twice_counts_once) {
    waiter waiter = {0};
    bell a = new_bell("a");
    a.timer.on_due = ring_and_ready;
    awaited = &waiter;
    loop_ready(world.loop, &waiter);
    loop_ready(world.loop, &waiter);
    loop_wait(world.loop, &waiter);
    set(&a, 1000);
    world.until_us = START_US + 10000;
    loop_wait(world.loop, &waiter);
    CHECK_EQUAL(a.count, 1);
}

int main(void) {
    return unit_main(begin, end);
}
