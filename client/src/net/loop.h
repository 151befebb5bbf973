/* SPDX-License-Identifier: BSD-3-Clause */
/* loop.h - one event loop per client, run by whichever thread waits.
 *
 * The mutex of the loop protects all state below the API: connections, servers, deployments, leases
 * and local queues. A thread that waits for a reply polls: it reads the replies of all threads and
 * runs timers until its own call can go on. So a program with one thread never waits for a thread
 * switch. One thread polls at a time; the other threads that wait sleep, each on a futex of its
 * own. While no thread waits, a background thread polls. In a loop without threads, the program
 * polls by dispatching, even while a thread waits.
 *
 * "Locked" means that the caller has the mutex. Callbacks come locked, from the thread that polls,
 * and must not block. User code is never called locked. */
#pragma once
#include "base/deadline.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/platform.h"
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
    /* ready: the events of epoll_wait(2). A descriptor that is watched with EPOLLET is told once of
     * bytes that have arrived: the owner reads all of them, or calls loop_tell_again(). The call
     * may come although nothing has happened. */
    void (*on_ready)(loop_io *io, uint32_t ready);
    /* After loop_write(): take_output() moves the bytes to be sent to output, or returns false if
     * there are none. on_written() gets them back, with the result of send(2). In between there is
     * no other take_output(): what is queued meanwhile needs another loop_write(). */
    bool (*take_output)(loop_io *io, bytes *output);
    void (*on_written)(loop_io *io, bytes *output, ssize_t count, int fault);
    /* Private to loop.c. */
    bool is_watched;
    uint32_t events;
    list_node write_node;
    bool *closed_meanwhile; /* of the thread that sends without the mutex; NULL: none does */
};

/* Watches io->fd for these events from now on. False: no memory or descriptor. */
bool loop_watch(loop *loop, loop_io *io, uint32_t events);
/* Ends the watch and closes the descriptor. An owner that wants shutdown(2) calls it before. */
void loop_close(loop *loop, loop_io *io);
/* The owner has left bytes unread, so that other threads get the mutex in between: on_ready() is
 * called again in the next turn, although no new bytes arrive. */
void loop_tell_again(loop *loop, loop_io *io);

/* Bytes are queued for io. They are sent when the mutex is next released, or a little later if more
 * are about to come (loop.c, gather). The send itself runs without the mutex, because send(2) is
 * slow and other threads may queue more meanwhile. under_way: how many requests of io have no reply
 * yet, including those that are to be sent. */
void loop_write(loop *loop, loop_io *io, size_t under_way);

/* Between take_output() and on_written(). */
static inline bool loop_is_sending(const loop_io *io) {
    return io->closed_meanwhile != NULL;
}

/* -- timers and deferred work. Locked. */

typedef struct loop_timer {
    heap_node node;
    void (*on_due)(struct loop_timer *timer);
} loop_timer;

/* Sets or moves the timer; DEADLINE_NEVER clears it. Cannot fail. */
void loop_set_timer(loop *loop, loop_timer *timer, int64_t due_us);
void loop_clear_timer(loop *loop, loop_timer *timer);

/* A task runs before the mutex is released, unless list_remove() takes the node out before. */
typedef struct loop_task {
    list_node node;
    void (*run)(struct loop_task *task);
} loop_task;

void loop_defer(loop *loop, loop_task *task); /* a task that is deferred already runs once */

/* -- waiting */

/* Cancels calls: odd, until lifted. The number only grows, so a call that began with another number
 * was canceled meanwhile, even if the cancel was lifted before anybody looked. {0} at first. Not
 * locked. cancel_set() is async-signal-safe. */
typedef atomic_uint cancel_switch;

static inline void cancel_set(cancel_switch *cancel) {
    atomic_fetch_or(cancel, 1);
}

static inline void cancel_lift(cancel_switch *cancel) {
    unsigned seen = atomic_load(cancel);
    if (seen % 2 == 1) atomic_compare_exchange_strong(cancel, &seen, seen + 1);
}

/* before: the number when the call began. */
static inline bool cancel_is_seen(const cancel_switch *cancel, unsigned before) {
    unsigned seen = atomic_load(cancel);
    return seen % 2 == 1 || seen != before;
}

/* A call that a thread waits for, or a call that is suspended. {0} but for cancel. The bools
 * change locked. */
typedef struct waiter {
    list_node node;
    wakeup wakeup;               /* of the thread while it sleeps on a futex */
    bool is_ready;               /* the call can go on */
    bool is_asleep;              /* the thread polls for all, and may sleep in that */
    bool is_on_futex;            /* the thread sleeps, and another one polls */
    bool is_woken;               /* the thread on the futex is about to run */
    bool is_suspended;           /* no thread waits for the call: loop_suspend() */
    const cancel_switch *cancel; /* NULL: the call cannot be canceled */
    unsigned own_cancel_before, client_cancel_before; /* loop_note_cancels() */
} waiter;

/* Returns once loop_ready() was called for the waiter, or the waiter is canceled; is_ready is false
 * then. Locked before and after; the mutex is released meanwhile. */
void loop_wait(loop *loop, waiter *waiter);
/* The same, but returns at until_us at the latest. */
void loop_wait_until(loop *loop, waiter *waiter, int64_t until_us);

/* The call can go on. Locked. */
void loop_ready(loop *loop, waiter *waiter);

/* Wakes the waiters whose switch has been set. Not locked. Async-signal-safe. */
void loop_interrupt(loop *loop);
/* True: all waiters that can be canceled are canceled, and later ones too, until a call with false.
 * Not locked. With true async-signal-safe. */
void loop_cancel(loop *loop, bool is_canceled);
/* The call of the waiter begins: only later cancels, and those in force, count. Not locked. */
void loop_note_cancels(const loop *loop, waiter *waiter, const cancel_switch *cancel);
/* Is the call of the waiter canceled, by this switch or by that of the loop? cancel NULL: it cannot
 * be canceled. Threads: any. */
bool loop_has_canceled(const loop *loop, const waiter *waiter, const cancel_switch *cancel);

/* More or fewer replies are still to come, on all descriptors together. Locked. */
void loop_count_owed(loop *loop, ptrdiff_t change);
/* Waits until no reply is to come, until_us at the latest. Locked before and after. */
void loop_drain(loop *loop, int64_t until_us);

/* -- dispatching: how calls go on that no thread waits for. Locked, all of these. */

/* No thread waits for the call. Once the waiter is ready or canceled, loop_next_ready() gives it to
 * any thread that dispatches; so after loop_unlock() the caller must not touch the call. */
void loop_suspend(loop *loop, waiter *waiter);
/* Takes a suspended waiter out of the loop. */
void loop_unsuspend(waiter *waiter);

/* Begins a dispatch. The requests that this thread makes until loop_end_dispatch() are sent
 * together, at the end or after DISPATCH_GATHER_US. In a loop without threads, a turn is made
 * first. False: another dispatch is going on. */
bool loop_begin_dispatch(loop *loop);
/* Takes the next waiter that was ready when the dispatch began. NULL: there is no other. */
waiter *loop_next_ready(loop *loop);
void loop_end_dispatch(loop *loop);

/* A descriptor that is readable while a dispatch would find something to do. It belongs to the
 * loop. Negative: the process has no descriptor left. */
int loop_dispatch_fd(loop *loop);

/* -- the background thread */

/* Called right after loop_new(): the loop starts no thread, and dispatches do the work of the
 * background thread. */
void loop_forbid_threads(loop *loop);
bool loop_has_threads(const loop *loop);
/* For a loop without threads: runs the background work if loop_wake_background() was called. Not
 * locked. */
void loop_do_background_work(loop *loop);

/* Starts the background thread, unless it runs already or threads are forbidden. False: no thread
 * could be started. Locked. */
bool loop_start_background(loop *loop);
/* Is the caller that thread? NULL: no. */
bool loop_is_background(const loop *loop);
/* work(arg) runs in the background thread, not locked, whenever that thread was woken. Set before
 * the thread starts. */
void loop_set_background_work(loop *loop, void (*work)(void *arg), void *arg);
void loop_wake_background(loop *loop); /* locked */
