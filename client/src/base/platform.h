/* SPDX-License-Identifier: BSD-3-Clause */
/* platform.h - what the library needs of the operating system: time, chance and threads.
 *
 *   clock    behind a table of functions, so that a unit test of waiting takes no time
 *   thread   a thread of the library's own
 *   wakeup   how a thread sleeps until another wakes it. A futex, which needs no descriptor:
 *
 *     unsigned seen = wakeup_seen(&wakeup);     // before looking whether there is something to do
 *     if (nothing to do) wakeup_wait(&wakeup, seen, timeout_us);
 *
 * A signal between the two calls is not lost. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* -- the clock */

typedef struct clock_source clock_source;

struct clock_source {
    /* Microseconds on CLOCK_BOOTTIME, which nobody can set and which counts suspend. */
    int64_t (*now_us)(const clock_source *clock);
    /* Microseconds of the wall clock, for log lines and proposed fences only. */
    int64_t (*unix_us)(const clock_source *clock);
    uint64_t (*random_bits)(const clock_source *clock);
    /* NULL: time passes. Else a fake clock: called instead of sleeping. */
    void (*skip_to)(const clock_source *clock, int64_t until_us);
};

const clock_source *clock_system(void);

static inline int64_t clock_now_us(const clock_source *clock) {
    return clock->now_us(clock);
}

/* -- threads */

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

/* wakeup_signal() in two halves, for a signaler with a mutex that the woken thread needs at once:
 * wakeup_mark() before the mutex is released, wakeup_wake() after that. By then the woken thread
 * may be gone, and the wakeup with its stack: wakeup_wake() uses nothing but the address. */
static inline void wakeup_mark(wakeup *wakeup) {
    atomic_fetch_add(&wakeup->count, 1);
}
void wakeup_wake(wakeup *wakeup);
