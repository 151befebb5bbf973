/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.c - see thread.h. */
#include "thread.h"

#include <signal.h>

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
