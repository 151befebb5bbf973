/* SPDX-License-Identifier: BSD-3-Clause */
/* loop_io.c - the descriptors of a loop: see loop.h.
 *
 *   watch         an epoll set, and an array from descriptors to their owners
 *   send          bytes are sent without the mutex
 *   brief read    the only thread that waits reads the only descriptor, also without the mutex
 *   spin          while several threads wait, the one that polls does not sleep at once (spin.h),
 *                 and lets the others have its processor
 *
 * Invariant: a thread that uses a descriptor without the mutex has it in the list of busy
 * descriptors. If the descriptor is closed meanwhile, that thread closes it in the end, so its
 * number is not used again too soon. */
#include "net/loop_state.h"

#include <sched.h>
#include <sys/socket.h>

enum { BRIEF_BYTES = 16384 };

static bool reserve_fd(loop *loop, int fd) {
    if ((size_t)fd < loop->watched.capacity) return true;
    size_t capacity = (size_t)fd * 2 + 1;
    loop_io **grown = realloc(loop->watched.by_fd, capacity * sizeof(grown[0]));
    if (grown == NULL) return false;
    for (size_t i = loop->watched.capacity; i < capacity; i++)
        grown[i] = NULL;
    loop->watched.by_fd = grown;
    loop->watched.capacity = capacity;
    return true;
}

bool loop_watch(loop *loop, loop_io *io, uint32_t events) {
    /* EPOLLOUT is asked for again: another thread may have taken the event during the send. */
    bool is_known = io->is_watched && io->events == events && (events & EPOLLOUT) == 0;
    if (is_known) return true;
    struct epoll_event event = {.events = events, .data.fd = io->fd};
    int operation = io->is_watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (!reserve_fd(loop, io->fd) ||
        epoll_ctl(loop->watched.epoll_fd, operation, io->fd, &event) != 0)
        return false;
    if (!io->is_watched) loop->watched.io_count++;
    loop->watched.by_fd[io->fd] = io;
    io->is_watched = true;
    io->events = events;
    return true;
}

void loop_tell_again(loop *loop, loop_io *io) {
    struct epoll_event event = {.events = io->events, .data.fd = io->fd};
    epoll_ctl(loop->watched.epoll_fd, EPOLL_CTL_MOD, io->fd, &event);
    loop->has_left_events = true;
}

/* A thread that uses the descriptor without the mutex closes it afterwards. */
static void close_when_idle(loop *loop, int fd) {
    bool is_busy = false;
    list_each(busy_fd, busy, &loop->busy, node) {
        if (busy->fd != fd) continue;
        busy->is_closed = is_busy = true;
    }
    if (!is_busy) close_if_open(fd);
}

void loop_expect(loop *loop, loop_io *io, bool is_expected) {
    if (is_expected)
        loop->brief.io = io;
    else if (loop->brief.io == io)
        loop->brief.io = NULL;
}

void loop_close(loop *loop, loop_io *io) {
    if (io->is_watched) {
        /* By hand: a forked child with a copy of the descriptor would keep the registration. */
        epoll_ctl(loop->watched.epoll_fd, EPOLL_CTL_DEL, io->fd, NULL);
        loop->watched.by_fd[io->fd] = NULL;
        loop->watched.io_count--;
        io->is_watched = false;
    }
    loop_expect(loop, io, false);
    list_remove(&io->write_node);
    close_when_idle(loop, io->fd);
    io->fd = -1;
}

void loop_write(loop *loop, loop_io *io, size_t under_way) {
    loop->gathering.count++;
    loop->gathering.under_way = under_way;
    if (!list_has(&io->write_node)) list_append(&loop->writes, &io->write_node);
}

/* The descriptor is used without the mutex in between; it is not closed, nor its number used again,
 * before the end. */
static void begin_busy(loop *loop, busy_fd *busy, int fd) {
    *busy = (busy_fd){.fd = fd};
    list_append(&loop->busy, &busy->node);
    loop_give_mutex(loop);
}

static void end_busy(loop *loop, busy_fd *busy) {
    loop_lock(loop);
    list_remove(&busy->node);
    if (busy->is_closed) close_when_idle(loop, busy->fd);
}

void loop_send(loop *loop, loop_io *io, bytes *output) {
    busy_fd busy;
    begin_busy(loop, &busy, io->fd);
    ssize_t count = send(busy.fd, output->data, output->size, MSG_NOSIGNAL | MSG_DONTWAIT);
    int fault = errno;
    end_busy(loop, &busy);
    if (!busy.is_closed)
        io->on_written(io, output, count, fault);
    else
        free(output->data);
}

void loop_read_briefly(loop *loop) {
    char bytes[BRIEF_BYTES];
    loop_io *io = loop->brief.io;
    busy_fd busy;
    loop->brief.busy_fd = io->fd;
    begin_busy(loop, &busy, io->fd);
    ssize_t count = recv(busy.fd, bytes, sizeof(bytes), 0);
    int fault = errno;
    end_busy(loop, &busy);
    loop->brief.busy_fd = -1;
    uint32_t ready = loop->brief.ready;
    loop->brief.ready = 0;
    if (busy.is_closed) return;
    io->on_bytes(io, bytes, count, fault);
    if (ready != 0 && loop->watched.by_fd[busy.fd] == io) io->on_ready(io, ready);
}

int loop_spin(loop *loop, struct epoll_event *events, int max) {
    int64_t begin_us = loop_now_us(loop), now_us = begin_us;
    if (!spin_is_wanted(&loop->watched.spin, begin_us)) return 0;
    int count = epoll_wait(loop->watched.epoll_fd, events, max, 0);
    if (count != 0) return count; /* says nothing about spinning */
    while (count == 0 && now_us < begin_us + SPIN_US) {
        sched_yield();
        count = epoll_wait(loop->watched.epoll_fd, events, max, 0);
        now_us = loop_now_us(loop);
    }
    spin_note(&loop->watched.spin, count > 0, begin_us, now_us);
    return count;
}
