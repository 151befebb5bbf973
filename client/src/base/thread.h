/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.h - threads of the library's own, and how a thread sleeps until another wakes it.
 *
 *     unsigned seen = wakeup_seen(&wakeup);     // before looking whether there is something to do
 *     if (nothing to do) wakeup_wait(&wakeup, seen, timeout_us);
 *
 * A signal between the two calls is not lost. A wakeup is a futex, and needs no descriptor. */
#ifndef DLOCK_BASE_THREAD_H
#define DLOCK_BASE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Signals of the program do not reach the thread. thread NULL: detached. False: the system has no
 * more threads to give. */
bool thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

typedef struct wakeup {
    atomic_uint count;
} wakeup;

static inline unsigned wakeup_seen(wakeup *wakeup) {
    return atomic_load(&wakeup->count);
}

/* Returns when the count differs from seen, after timeout_us (negative: never), or early. */
void wakeup_wait(wakeup *wakeup, unsigned seen, int64_t timeout_us);
void wakeup_signal(wakeup *wakeup); /* async-signal-safe */

/* Sleepers to be woken once a mutex is given back: a thread that is woken needs the mutex at once.
 * The count of a sleeper is raised when added. Then the memory of the sleeper may be gone: waking
 * only passes an address to the kernel. */
enum { WAKE_LIST_MAX = 64 };

typedef struct wake_list {
    size_t count;
    const wakeup *wakeups[WAKE_LIST_MAX];
} wake_list;

void wake_list_add(wake_list *list, wakeup *wakeup); /* wakes at once if the list is full */
void wake_list_wake(const wake_list *list);

#endif
