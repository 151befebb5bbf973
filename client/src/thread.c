/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.c - see thread.h. */
#include "thread.h"

#include "interrupt.h"
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

bool thread_start(pthread_t *thread, void *(*work)(void *), void *data) {
    pthread_t detached;
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return false;
    bool is_started = pthread_create(thread != NULL ? thread : &detached, NULL, work, data) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (is_started && thread == NULL) pthread_detach(detached);
    return is_started;
}

bool worker_start(worker *which, void *(*work)(void *), void *data) {
    if (which->is_started) return true;
    if (which->wake_fd < 0) which->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    which->is_started = which->wake_fd >= 0 && thread_start(&which->thread, work, data);
    return which->is_started;
}

void worker_join(worker *which) {
    if (which->is_started) {
        interrupt_wake(which->wake_fd);
        pthread_join(which->thread, NULL);
    }
    if (which->wake_fd >= 0) close(which->wake_fd);
}

bool worker_is_self(const worker *which) {
    return which->is_started && pthread_equal(which->thread, pthread_self());
}
