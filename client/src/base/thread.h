/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.h - threads of the library's own, and how a thread sleeps until another wakes it.
 *
 *     unsigned seen = wakeup_seen(&wakeup);     // before looking whether there is something to do
 *     if (nothing to do) wakeup_wait(&wakeup, seen, timeout_us);
 *
 * A signal between the two calls is not lost. A wakeup is a futex, and needs no descriptor. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Signals that are sent to the process do not reach the thread. Signals of a fault in the thread
 * itself do, so that the program's crash reports see them. thread NULL: detached. False: the system
 * has no more threads to give, and errno says why. */
bool thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

/* The number of the calling thread. No other thread gets it, not even after the end of this one. */
uint64_t thread_number(void);

/* For short critical sections: a thread spins a little before it sleeps. */
void mutex_init(pthread_mutex_t *mutex);

typedef struct wakeup {
    atomic_uint count;
} wakeup;

static inline unsigned wakeup_seen(wakeup *wakeup) {
    return atomic_load(&wakeup->count);
}

/* Returns when the count differs from seen, after timeout_us (negative: never), or early. */
void wakeup_wait(wakeup *wakeup, unsigned seen, int64_t timeout_us);
void wakeup_signal(wakeup *wakeup); /* async-signal-safe */

/* Threads that sleep beside each other under one mutex, so that one system call wakes many of them:
 *
 *     seat = sleepers_take_seat(&sleepers);
 *     seen = sleepers_seen(&sleepers, seat);
 *     unlock; sleepers_wait(&sleepers, seat, seen); lock;
 *     sleepers_leave_seat(&sleepers, seat);
 *
 * Another thread calls sleepers_mark(seat) locked, and wakes the threads of all marked seats once
 * the mutex is given back: a thread that is woken needs the mutex at once. A thread may wake up for
 * nothing, for instance if there are more sleepers than seats. All zero: nobody sleeps. */
enum { SLEEPER_GROUPS = 16, SLEEPER_SEATS = SLEEPER_GROUPS * 32 };

/* A bit for each seat. */
typedef struct seat_set {
    uint32_t groups; /* a bit for each group that has a bit set */
    uint32_t seats[SLEEPER_GROUPS];
} seat_set;

typedef struct sleepers {
    atomic_uint counts[SLEEPER_GROUPS]; /* futexes, raised by each mark */
    uint32_t taken[SLEEPER_GROUPS];
    seat_set marked;
} sleepers;

int sleepers_take_seat(sleepers *sleepers);
void sleepers_leave_seat(sleepers *sleepers, int seat);
unsigned sleepers_seen(sleepers *sleepers, int seat);
void sleepers_mark(sleepers *sleepers, int seat);

/* Not locked. Returns when the seat was marked after sleepers_seen(), or early. */
void sleepers_wait(sleepers *sleepers, int seat, unsigned seen);

/* Takes the marks, locked; then wakes the threads, not locked. */
static inline bool sleepers_take_marks(sleepers *sleepers, seat_set *marked) {
    if (sleepers->marked.groups == 0) return false;
    *marked = sleepers->marked;
    sleepers->marked = (seat_set){0};
    return true;
}
void sleepers_wake(sleepers *sleepers, const seat_set *marked);
