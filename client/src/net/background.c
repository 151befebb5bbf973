/* SPDX-License-Identifier: BSD-3-Clause */
/* background.c - the background thread of a loop: see loop.h.
 *
 * The thread sleeps until a descriptor of the epoll set is ready. If no other thread polls, it then
 * makes a turn of the loop. If another thread polls, it naps for NAP_US, so that it does not
 * disturb a busy program. If the other thread has made no turn during the nap, that thread has got
 * no processor, and the background thread makes a turn beside it. */
#include "base/platform.h"
#include "net/loop_state.h"
#include "net/tls.h"
#include <poll.h>

enum { NAP_US = 5000 };

static void *run_background(void *arg) {
    loop *loop = arg;
    background *self = &loop->background;
    eventfd_t count;
    size_t turns = 0; /* before the nap */
    while (!atomic_load(&self->is_stopping)) {
        struct pollfd sources[] = {{.fd = loop->watched.epoll_fd, .events = POLLIN},
                                   {.fd = self->wake_fd, .events = POLLIN}};
        poll(sources, 2, -1);
        if (sources[1].revents != 0) eventfd_read(self->wake_fd, &count);
        unsigned seen = wakeup_seen(&self->nap);
        loop_lock(loop);
        bool is_needed = loop_turn(loop);
        if (!is_needed && self->is_napping && turns == loop->turns) loop_turn_beside(loop);
        turns = loop->turns;
        self->is_napping = !is_needed;
        loop_unlock(loop);
        if (self->work != NULL) self->work(self->arg);
        if (!is_needed) wakeup_wait(&self->nap, seen, NAP_US);
    }
    tls_end_thread();
    return NULL;
}

void background_stop(loop *loop) {
    if (!loop->background.is_started) return;
    atomic_store(&loop->background.is_stopping, true);
    loop_wake_background(loop);
    pthread_join(loop->background.thread, NULL);
}

bool loop_start_background(loop *loop) {
    background *self = &loop->background;
    if (loop->has_no_threads) return true;
    if (!self->is_started) self->is_started = thread_start(&self->thread, run_background, loop);
    return self->is_started;
}

bool loop_is_background(const loop *loop) {
    if (loop == NULL || !loop->background.is_started) return false;
    return pthread_equal(loop->background.thread, pthread_self());
}

void loop_set_background_work(loop *loop, void (*work)(void *arg), void *arg) {
    loop->background.work = work;
    loop->background.arg = arg;
}

void loop_wake_background(loop *loop) {
    if (loop->has_no_threads) {
        loop->is_work_due = true;
        return;
    }
    event_signal(loop->background.wake_fd);
    wakeup_signal(&loop->background.nap);
}
