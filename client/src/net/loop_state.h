/* SPDX-License-Identifier: BSD-3-Clause */
/* loop_state.h - shared by loop.c, dispatch.c and background.c, and by no other file. */
#pragma once
#include "net/loop.h"
#include "net/spin.h"
#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The descriptors that a turn polls. */
typedef struct watched {
    int epoll_fd, timer_fd, wake_fd;
    loop_io **by_fd; /* the owner of each descriptor; NULL: not watched */
    size_t capacity;
    spin spin; /* whether the thread that polls spins before it sleeps */
} watched;

/* Requests that are sent together: see loop.c, gather. */
typedef struct gathering {
    size_t count;     /* calls of loop_write() since bytes were last sent */
    size_t under_way; /* requests without a reply, on the connection of the last loop_write() */
    size_t woken;     /* threads that were woken and have not run yet */
    loop_timer timer; /* set while requests are gathered */
} gathering;

typedef struct background {
    pthread_t thread;
    bool is_started;
    atomic_bool is_stopping;
    int wake_fd; /* wakes the thread; in a loop without threads, a thread that waits */
    wakeup nap;
    bool is_napping;
    void (*work)(void *arg);
    void *arg;
} background;

/* Private to dispatch.c. */
typedef struct dispatching {
    list suspended, ready, batch; /* waiter: not ready; ready; ready, of the dispatch under way */
    int ready_fd, fd; /* the eventfd; what the program polls, maybe the same; -1: none yet */
    bool is_signaled; /* the eventfd is readable */
    bool is_going_on;
    pthread_t thread;     /* that dispatches */
    int64_t gather_by_us; /* what is written is sent by then; 0: nothing was written */
} dispatching;

enum { LOOP_WAKE_MAX = 64 };

struct loop {
    const clock_source *clock;
    pthread_mutex_t mutex;
    watched watched;
    heap timers;
    int64_t armed_us;               /* when the timerfd goes off; DEADLINE_NEVER: never */
    list tasks, writes, waiters;    /* loop_task, loop_io, waiter */
    bool is_polling;                /* a thread makes turns */
    bool has_left_events;           /* loop_tell_again() was called since the last poll */
    size_t turns;                   /* counts the turns of threads that wait */
    wakeup *to_wake[LOOP_WAKE_MAX]; /* threads to be woken once the mutex is released */
    size_t to_wake_count;
    gathering gathering;
    size_t owed;          /* replies that are still to come */
    waiter *drained;      /* of loop_drain(), or NULL */
    cancel_switch cancel; /* all calls: loop_cancel() */
    bool has_no_threads;
    bool is_work_due; /* background work, without threads */
    background background;
    dispatching dispatching;
};

/* Makes a turn without sleeping, unless a thread polls: then false. Locked. */
bool loop_turn(loop *loop);
/* Makes a turn even while a thread polls, as that thread may get no processor. Locked. */
void loop_turn_beside(loop *loop);

/* Releases the mutex and wakes threads. Runs no tasks and sends nothing, unlike loop_unlock(). */
void loop_give_mutex(loop *loop);

/* Sends all queued bytes. Releases the mutex meanwhile. */
void loop_send_all(loop *loop);

/* In dispatch.c. Locked, all of these. */
void dispatching_init(dispatching *dispatching);
void dispatching_free(dispatching *dispatching);
/* A suspended waiter can go on. */
void dispatch_ready(loop *loop, waiter *waiter);
void dispatch_canceled(loop *loop); /* so can all that are canceled */
/* Makes the descriptor readable. Called before the mutex is released, if a dispatch would find
 * something to do. */
void dispatch_signal(loop *loop);

static inline bool dispatch_has_work(const loop *loop) {
    return !list_is_empty(&loop->dispatching.ready) || loop->is_work_due;
}

/* Does the calling thread dispatch? Then its requests are gathered. */
static inline bool dispatch_is_gathering(const loop *loop) {
    return loop->dispatching.is_going_on && pthread_equal(loop->dispatching.thread, pthread_self());
}

static inline bool waiter_can_go_on(const loop *loop, const waiter *waiter) {
    return waiter->is_ready || loop_has_canceled(loop, waiter, waiter->cancel);
}

/* In background.c: ends the thread, if it was started. */
void background_stop(loop *loop);

/* Signals an eventfd. Async-signal-safe. */
static inline void event_signal(int fd) {
    int before = errno; /* of the code that a signal handler interrupted */
    eventfd_write(fd, 1);
    errno = before;
}

/* False: no memory, or fd is negative. */
static inline bool epoll_add(int epoll_fd, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

static inline void close_if_open(int fd) {
    if (fd >= 0) close(fd);
}
