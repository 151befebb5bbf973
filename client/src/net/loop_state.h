/* SPDX-License-Identifier: BSD-3-Clause */
/* loop_state.h - what loop.c, loop_io.c and background.c share. No other file includes it. */
#pragma once
#include "net/loop.h"
#include <errno.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

typedef struct brief_read {
    loop_io *io;    /* a reply is expected here; NULL: nowhere */
    int busy_fd;    /* a thread reads it without the mutex; -1: none */
    uint32_t ready; /* what another thread was told about it meanwhile */
} brief_read;

/* A thread uses a descriptor without the mutex. On the stack of that thread. */
typedef struct busy_fd {
    list_node node;
    int fd;
    bool is_closed; /* it is to be closed after that */
} busy_fd;

typedef struct background {
    pthread_t thread;
    bool is_started;
    atomic_bool is_stopping;
    int wake_fd;
    wakeup nap;
    void (*work)(void *arg);
    void *arg;
} background;

struct loop {
    const clock_source *clock;
    pthread_mutex_t mutex;
    int epoll_fd, timer_fd, wake_fd;
    loop_io **by_fd; /* what is watched, by descriptor; NULL: nothing */
    size_t fd_capacity, io_count;
    heap timers;
    int64_t armed_us;                  /* when the timerfd goes off; DEADLINE_NEVER: not set */
    list tasks, writes, waiters, busy; /* loop_task, loop_io, waiter, busy_fd */
    bool is_polling;                   /* a thread makes turns */
    brief_read brief;
    sleepers sleepers;  /* threads that wait and do not poll */
    size_t woken_count; /* of these, threads that were woken and have not run yet */
    size_t gathered;    /* writes since bytes were sent last */
    size_t owed;        /* replies that are still to come */
    waiter *drained;    /* of loop_drain(), or NULL */
    background background;
};

/* Makes a turn without sleeping if no thread polls. False: one does. Locked. */
bool loop_turn(loop *loop);

/* Gives the mutex back and wakes threads, without finishing deferred work. */
void loop_give_mutex(loop *loop);

/* Of loop_io.c. Both give the mutex back meanwhile. */
void loop_send(loop *loop, loop_io *io, bytes *output);
void loop_read_briefly(loop *loop);

/* Of background.c: ends the thread, if it was started. */
void background_stop(loop *loop);

/* Of an eventfd. Async-signal-safe. */
static inline void event_signal(int fd) {
    int before = errno; /* of the code that a signal handler interrupted */
    eventfd_write(fd, 1);
    errno = before;
}

static inline void close_if_open(int fd) {
    if (fd >= 0) close(fd);
}
