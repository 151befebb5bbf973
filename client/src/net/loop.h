/* SPDX-License-Identifier: BSD-3-Clause */
/* loop.h - one event loop per client, run by whichever thread waits.
 *
 * All state below the API belongs to the loop's mutex: connections, servers, deployments, leases,
 * local queues. A thread that waits for its call polls, reads replies for everybody and runs
 * timers, until its own call can go on. One thread polls at a time; the others sleep on a futex
 * each. While nobody waits, a background thread polls; in a loop without threads, the program does
 * so by dispatching, also beside a thread that waits.
 *
 * "Locked": the caller has the mutex. Callbacks are called locked, by the thread that polls; they
 * must not block. User code is never called locked. */
#pragma once
#include "base/clock.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/thread.h"
#include "net/bytes.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

typedef struct loop loop;

/* NULL: no memory or descriptor. */
loop *loop_new(const clock_source *clock);
/* Ends the background thread. No thread waits; all descriptors and timers are gone. */
void loop_free(loop *loop);

void loop_lock(loop *loop);
/* Runs deferred tasks and sends what was queued for connections first. */
void loop_unlock(loop *loop);

const clock_source *loop_clock(const loop *loop);
int64_t loop_now_us(const loop *loop);

/* -- descriptors. Locked. */

typedef struct loop_io loop_io;
struct loop_io {
    int fd;
    /* ready: as of epoll, EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP. Edge-triggered: told once of
     * what has arrived, so all of it is to be read, or loop_tell_again() to be called. May be told
     * for nothing. */
    void (*on_ready)(loop_io *io, uint32_t ready);
    /* After loop_write(): gives the bytes to send away, or returns false if there are none; and
     * takes them back, with the result of send(2). */
    bool (*take_output)(loop_io *io, bytes *output);
    void (*on_written)(loop_io *io, bytes *output, ssize_t count, int fault);
    /* After loop_expect(): the result of recv(2). */
    void (*on_bytes)(loop_io *io, const char *bytes, ssize_t count, int fault);
    /* Private to loop.c. */
    bool is_watched;
    uint32_t events;
    list_node write_node;
};

/* Watches io->fd for these events from now on. False: no memory or descriptor. */
bool loop_watch(loop *loop, loop_io *io, uint32_t events);
/* Forgets io and closes its descriptor (shutdown(2) before, if wanted, is the owner's). */
void loop_close(loop *loop, loop_io *io);
/* Tells io of its events once more if there still are any, though they are edge triggered: io has
 * left some of them for the next turn, and other threads get the mutex before. */
void loop_tell_again(loop *loop, loop_io *io);

/* Sends before the mutex is given back the next time, but without it: sending takes long, and what
 * other threads queue meanwhile goes out together. Or a little later: see loop.c, gather.
 * under_way: requests of io without a reply, those to be sent included. */
void loop_write(loop *loop, loop_io *io, size_t under_way);

/* A reply is expected on io any moment. If one thread waits, and for nothing else, it reads that
 * descriptor in one system call instead of polling first. The descriptor must be blocking with
 * SO_RCVTIMEO of LOOP_BRIEF_US. False: no more. */
enum { LOOP_BRIEF_US = 4000 };
void loop_expect(loop *loop, loop_io *io, bool is_expected);

/* -- timers and deferred work. Locked. */

typedef struct loop_timer {
    heap_node node;
    void (*on_due)(struct loop_timer *timer);
} loop_timer;

/* Sets, moves, or with DEADLINE_NEVER removes it. Cannot fail. */
void loop_set_timer(loop *loop, loop_timer *timer, int64_t due_us);
void loop_clear_timer(loop *loop, loop_timer *timer);

/* Runs before the mutex is given back, unless list_remove() takes the node back. */
typedef struct loop_task {
    list_node node;
    void (*run)(struct loop_task *task);
} loop_task;

void loop_defer(loop *loop, loop_task *task); /* once, however often it is deferred before */

/* -- waiting */

/* A call that a thread waits for, or that is suspended. {0} but for is_canceled. */
typedef struct waiter {
    list_node node;
    int seat;                              /* of the thread while it sleeps on a futex */
    bool is_ready, is_asleep, is_on_futex; /* locked; asleep: polls */
    bool is_woken;                         /* on a futex, and about to run */
    bool is_suspended;                     /* no thread waits: loop_suspend() */
    atomic_bool *is_canceled;              /* NULL: it cannot be canceled */
} waiter;

/* Locked before and after. Returns once loop_ready() was called for it, or it is canceled; takes
 * the mark that it is ready away. */
void loop_wait(loop *loop, waiter *waiter);
void loop_wait_until(loop *loop, waiter *waiter, int64_t until_us); /* returns at that time, too */

/* Locked. The call can go on. */
void loop_ready(loop *loop, waiter *waiter);

/* Wakes waiters that are canceled. Not locked. Async-signal-safe. */
void loop_interrupt(loop *loop);
/* Cancels all waiters that can be canceled, also later ones, until told otherwise. Likewise. */
void loop_cancel(loop *loop, bool is_canceled);
/* Is a call with this flag canceled? flag NULL: it cannot be canceled. Threads: any. */
bool loop_has_canceled(loop *loop, const atomic_bool *flag);

/* Counts replies that are still to come, on all descriptors. Locked. */
void loop_count_owed(loop *loop, ptrdiff_t change);
/* Waits until no reply is owed, or until the limit. Locked before and after. */
void loop_drain(loop *loop, int64_t until_us);

/* -- dispatching: how calls go on that no thread waits for. Locked, all of these. */

/* No thread waits for the call. Once ready or canceled, the waiter is in line for
 * loop_next_ready(), in any thread that dispatches; so the caller lets go of the call. */
void loop_suspend(loop *loop, waiter *waiter);
/* Takes a suspended waiter out of the loop. */
void loop_unsuspend(waiter *waiter);

/* The thread dispatches from now on: what this thread writes leaves together, at the end or after
 * GATHER_US. False: another dispatch is going on. A loop without threads makes a turn first. */
bool loop_begin_dispatch(loop *loop);
/* The next waiter that was ready when the dispatch began, not suspended any more; NULL: none. */
waiter *loop_next_ready(loop *loop);
void loop_end_dispatch(loop *loop);

/* Readable while a dispatch would find something to do. Negative: no descriptor to be had. The
 * descriptor belongs to the loop. */
int loop_dispatch_fd(loop *loop);

/* -- the background thread */

/* No thread will be started: dispatches do the work of the background thread. Right after
 * loop_new(). */
void loop_forbid_threads(loop *loop);
bool loop_has_threads(const loop *loop);
/* For a loop without threads, not locked: does the background work if the loop was woken for it. */
void loop_do_background_work(loop *loop);

/* Makes sure that it runs, where threads are allowed. False: no thread to be had. Locked. */
bool loop_start_background(loop *loop);
/* Called by the background thread, not locked, whenever it has been woken; set before it starts. */
void loop_set_background_work(loop *loop, void (*work)(void *arg), void *arg);
void loop_wake_background(loop *loop); /* locked */
