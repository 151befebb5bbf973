/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.c - see thread.h. */
#define _GNU_SOURCE /* syscall(2) */
#include "base/thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

bool thread_start(pthread_t *thread, void *(*run)(void *), void *arg) {
    pthread_t detached;
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return false;
    bool is_started = pthread_create(thread != NULL ? thread : &detached, NULL, run, arg) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (is_started && thread == NULL) pthread_detach(detached);
    return is_started;
}

void wakeup_wait(wakeup *wakeup, unsigned seen, int64_t timeout_us) {
    struct timespec timeout = {.tv_sec = (time_t)(timeout_us / 1000000),
                               .tv_nsec = (long)(timeout_us % 1000000 * 1000)};
    syscall(SYS_futex, &wakeup->count, FUTEX_WAIT_PRIVATE, seen, timeout_us < 0 ? NULL : &timeout,
            NULL, 0);
}

static void wake(const wakeup *wakeup) {
    int before = errno;
    syscall(SYS_futex, &wakeup->count, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    errno = before;
}

void wakeup_signal(wakeup *wakeup) {
    atomic_fetch_add(&wakeup->count, 1);
    wake(wakeup);
}

void wake_list_add(wake_list *list, wakeup *wakeup) {
    atomic_fetch_add(&wakeup->count, 1);
    if (list->count < WAKE_LIST_MAX)
        list->wakeups[list->count++] = wakeup;
    else
        wake(wakeup);
}

void wake_list_wake(const wake_list *list) {
    for (size_t i = 0; i < list->count; i++)
        wake(list->wakeups[i]);
}
