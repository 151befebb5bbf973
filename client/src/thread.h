/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.h - threads of the library's own, which the program's signals do not reach. */
#ifndef DLOCK_THREAD_H
#define DLOCK_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* NULL as thread: detached. False: the system has no more to give. */
bool thread_start(pthread_t *thread, void *(*work)(void *), void *data);

/* A thread that begins with the first work for it, and sleeps on a descriptor that wakes it up
 * (interrupt.h). All zero but for the wake_fd, which is -1, as long as there is none. */
typedef struct worker {
    bool is_started;
    pthread_t thread;
    int wake_fd;
} worker;

/* Nothing to do if it has begun already. False: no descriptor or thread to be had. Not two at
 * once. */
bool worker_start(worker *which, void *(*work)(void *), void *data);

/* Wakes it up and waits until it has ended, as it must have been told to do. */
void worker_join(worker *which);

bool worker_is_self(const worker *which);

#endif
