/* SPDX-License-Identifier: BSD-3-Clause */
/* dispatch.c - calls that no thread waits for: see loop.h.
 *
 *   suspend    a call cannot go on yet: its waiter is in the list of suspended ones
 *   ready      an attempt ended, a timer, a cancel: the waiter moves to the list of ready ones, and
 *              the descriptor becomes readable before the mutex is released
 *   dispatch   the program takes the ready ones of that moment. Waiters that become ready
 *              meanwhile are for the next dispatch, so a dispatch ends
 *   gather     calls that the program starts while it dispatches usually follow each other at
 *              once, so their requests are sent together: at the end of the dispatch, or when the
 *              first done() that ends after DISPATCH_GATHER_US has returned
 *
 * The descriptor is an eventfd. A loop without threads also has to be polled for its sockets and
 * its timer: then the descriptor is an epoll descriptor over both.
 *
 * Invariant: a waiter that is suspended is in exactly one of the three lists. While no dispatch
 * goes on and the mutex is free, the eventfd is readable if and only if a waiter is ready or
 * background work is due. */
#include "net/loop_state.h"

enum { DISPATCH_GATHER_US = 100 };

void dispatching_init(dispatching *dispatching) {
    list_init(&dispatching->suspended);
    list_init(&dispatching->ready);
    list_init(&dispatching->batch);
    dispatching->ready_fd = dispatching->fd = -1;
}

void dispatching_free(dispatching *dispatching) {
    if (dispatching->fd != dispatching->ready_fd) close_if_open(dispatching->fd);
    close_if_open(dispatching->ready_fd);
}

/* -- suspended and ready */

void dispatch_ready(loop *loop, waiter *waiter) {
    list_remove(&waiter->node);
    list_append(&loop->dispatching.ready, &waiter->node);
}

void loop_suspend(loop *loop, waiter *waiter) {
    bool is_ready = waiter_can_go_on(loop, waiter);
    waiter->is_suspended = true;
    list_append(is_ready ? &loop->dispatching.ready : &loop->dispatching.suspended, &waiter->node);
}

void loop_unsuspend(waiter *waiter) {
    list_remove(&waiter->node);
    waiter->is_suspended = waiter->is_ready = false;
}

void dispatch_canceled(loop *loop) {
    list_each(waiter, each, &loop->dispatching.suspended, node)
        if (waiter_can_go_on(loop, each)) dispatch_ready(loop, each);
}

/* -- the descriptor */

void dispatch_signal(loop *loop) {
    dispatching *self = &loop->dispatching;
    if (self->is_signaled || self->is_going_on || self->ready_fd < 0) return;
    self->is_signaled = true;
    event_signal(self->ready_fd);
}

/* Readable when one of the two is. */
static int join(int fd, int other_fd) {
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd >= 0 && epoll_add(epoll_fd, fd) && epoll_add(epoll_fd, other_fd)) return epoll_fd;
    close_if_open(epoll_fd);
    return -1;
}

int loop_dispatch_fd(loop *loop) {
    dispatching *self = &loop->dispatching;
    if (self->ready_fd < 0) self->ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->ready_fd < 0 || self->fd >= 0) return self->fd;
    self->fd = loop->has_no_threads ? join(loop->watched.epoll_fd, self->ready_fd) : self->ready_fd;
    return self->fd;
}

/* -- a dispatch */

bool loop_begin_dispatch(loop *loop) {
    dispatching *self = &loop->dispatching;
    eventfd_t count;
    if (self->is_going_on) return false;
    self->is_going_on = true; /* the turn gives the mutex back */
    self->thread = pthread_self();
    /* Else the descriptor would stay readable until a thread that polls has run. */
    if (loop->has_no_threads && !loop_turn(loop)) loop_turn_beside(loop);
    if (self->is_signaled) eventfd_read(self->ready_fd, &count);
    self->is_signaled = false;
    self->gather_by_us = 0;
    list_each(waiter, ready, &self->ready, node) {
        list_remove(&ready->node);
        list_append(&self->batch, &ready->node);
    }
    return true;
}

waiter *loop_next_ready(loop *loop) {
    dispatching *self = &loop->dispatching;
    list_node *node = list_first(&self->batch);
    if (node == NULL) return NULL;
    if (!list_is_empty(&loop->writes)) {
        int64_t now_us = loop_now_us(loop);
        if (self->gather_by_us == 0) self->gather_by_us = now_us + DISPATCH_GATHER_US;
        if (now_us >= self->gather_by_us) {
            self->gather_by_us = 0;
            loop_send_all(loop);
            node = list_first(&self->batch); /* the mutex was released meanwhile */
            if (node == NULL) return NULL;
        }
    }
    waiter *waiter = container_of(node, struct waiter, node);
    loop_unsuspend(waiter);
    return waiter;
}

void loop_end_dispatch(loop *loop) {
    loop->dispatching.is_going_on = false;
}

/* -- a loop without threads */

void loop_forbid_threads(loop *loop) {
    loop->has_no_threads = true;
}

bool loop_has_threads(const loop *loop) {
    return !loop->has_no_threads;
}

void loop_do_background_work(loop *loop) {
    loop_lock(loop);
    bool is_due = loop->is_work_due;
    loop->is_work_due = false;
    loop_unlock(loop);
    if (is_due && loop->background.work != NULL) loop->background.work(loop->background.arg);
}
