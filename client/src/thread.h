/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.h - threads of the library's own, which the program's signals do not reach. */
#ifndef DLOCK_THREAD_H
#define DLOCK_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* NULL as thread: detached. False: the system has no more to give. */
bool thread_start(pthread_t *thread, void *(*work)(void *), void *data);

#endif
