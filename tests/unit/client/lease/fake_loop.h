/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_loop.h - a loop whose time the test moves, and whose background thread is the test itself.
 *
 * The file under test is compiled into the test, after this header: so that file meets the
 * functions here instead of those of the library that the test is linked with. */
#ifndef DLOCK_FAKE_LOOP_H
#define DLOCK_FAKE_LOOP_H

#define loop_now_us              fake_loop_now_us
#define loop_lock                fake_loop_lock
#define loop_unlock              fake_loop_unlock
#define loop_set_timer           fake_loop_set_timer
#define loop_clear_timer         fake_loop_clear_timer
#define loop_start_background    fake_loop_start_background
#define loop_set_background_work fake_loop_set_background_work
#define loop_wake_background     fake_loop_wake_background

#include "net/loop.h"
#include <pthread.h>

#define T0_US INT64_C(1000000000)
#define MS    INT64_C(1000)

struct loop {
    int64_t now_us;
    heap timers;
    pthread_mutex_t mutex;
    bool is_locked;
    bool has_no_thread;
    void (*work)(void *arg);
    void *arg;
    int wakes, timer_sets, timer_runs;
};

static loop fake_loop;

static inline void fake_loop_reset(void) {
    fake_loop = (loop){.now_us = T0_US, .mutex = PTHREAD_MUTEX_INITIALIZER};
}

int64_t loop_now_us(const loop *loop) {
    return loop->now_us;
}

void loop_lock(loop *loop) {
    pthread_mutex_lock(&loop->mutex);
    loop->is_locked = true;
}

void loop_unlock(loop *loop) {
    loop->is_locked = false;
    pthread_mutex_unlock(&loop->mutex);
}

void loop_set_timer(loop *loop, loop_timer *timer, int64_t due_us) {
    loop->timer_sets++;
    heap_remove(&loop->timers, &timer->node);
    if (due_us != INT64_MAX) heap_add(&loop->timers, &timer->node, due_us);
}

void loop_clear_timer(loop *loop, loop_timer *timer) {
    heap_remove(&loop->timers, &timer->node);
}

bool loop_start_background(loop *loop) {
    return !loop->has_no_thread;
}

void loop_set_background_work(loop *loop, void (*work)(void *arg), void *arg) {
    loop->work = work;
    loop->arg = arg;
}

void loop_wake_background(loop *loop) {
    loop->wakes++;
}

/* Runs the timers that are due by then, each in its time. Locked. */
static inline void run_until(int64_t until_us) {
    heap_node *first;
    while ((first = heap_first(&fake_loop.timers)) != NULL && first->due_us <= until_us) {
        if (first->due_us > fake_loop.now_us) fake_loop.now_us = first->due_us;
        heap_remove(&fake_loop.timers, first);
        fake_loop.timer_runs++;
        loop_timer *timer = container_of(first, loop_timer, node);
        timer->on_due(timer);
    }
    fake_loop.now_us = until_us;
}

#endif
