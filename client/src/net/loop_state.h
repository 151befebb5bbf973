/* SPDX-License-Identifier: BSD-3-Clause */
/* loop_state.h - shared by loop.c, loop_io.c, dispatch.c and background.c, and by no other file. */
#pragma once
#include "net/loop.h"
#include "net/spin.h"
#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The descriptors and timers a turn waits for. */
typedef struct watched {
    int epoll_fd, timer_fd, wake_fd;
    loop_io **by_fd; /* by descriptor; NULL: not watched */
    size_t capacity, io_count;
    spin spin; /* of the thread that polls */
} watched;

/* Writes that go out together: see loop.c. */
typedef struct gathering {
    size_t count;     /* writes since bytes were sent last */
    size_t under_way; /* requests without a reply, of the connection that was written to last */
    size_t woken;     /* threads that were woken and have not run yet */
    loop_timer timer; /* set while writes are gathered */
} gathering;

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
    int wake_fd; /* without threads: of a thread that waits */
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

struct loop {
    const clock_source *clock;
    pthread_mutex_t mutex;
    watched watched;
    heap timers;
    int64_t armed_us;                  /* when the timerfd goes off; DEADLINE_NEVER: not set */
    list tasks, writes, waiters, busy; /* loop_task, loop_io, waiter, busy_fd */
    bool is_polling;                   /* a thread makes turns */
    bool has_left_events;              /* see loop_tell_again() */
    size_t turns;                      /* of threads that wait */
    brief_read brief;
    sleepers sleepers; /* threads that wait and do not poll */
    gathering gathering;
    size_t owed;             /* replies that are still to come */
    waiter *drained;         /* of loop_drain(), or NULL */
    atomic_bool is_canceled; /* all calls: loop_cancel() */
    bool has_no_threads;
    bool is_work_due; /* background work, without threads */
    background background;
    dispatching dispatching;
};

/* Makes a turn without sleeping if no thread polls. False: one does. Locked. */
bool loop_turn(loop *loop);
/* The same, also while a thread polls: that one may get no processor. Locked. */
void loop_turn_beside(loop *loop);

/* Gives the mutex back and wakes threads, without finishing deferred work. */
void loop_give_mutex(loop *loop);

/* In loop_io.c. Polls for a moment, not locked. The result is that of epoll_wait(2). */
int loop_spin(loop *loop, struct epoll_event *events, int max);
/* Both give the mutex back meanwhile. */
void loop_send(loop *loop, loop_io *io, bytes *output);
void loop_read_briefly(loop *loop);

/* Sends what was written. Gives the mutex back meanwhile. */
void loop_send_all(loop *loop);

/* In dispatch.c. Locked, all of these. */
void dispatching_init(dispatching *dispatching);
void dispatching_free(dispatching *dispatching);
/* The waiter is suspended, and can go on. */
void dispatch_ready(loop *loop, waiter *waiter);
void dispatch_canceled(loop *loop); /* the same for all that are canceled */
/* Before the mutex is given back: makes the descriptor readable if there is something to do. */
void dispatch_signal(loop *loop);
/* The calling thread dispatches: its writes are gathered. */
bool dispatch_is_gathering(const loop *loop);

static inline bool waiter_can_go_on(loop *loop, const waiter *waiter) {
    return waiter->is_ready || loop_has_canceled(loop, waiter->is_canceled);
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
