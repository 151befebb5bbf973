/* SPDX-License-Identifier: BSD-3-Clause */
/* either_form.h - lets a test program run in the form that the variable DLOCK_FORM names:
 *
 *   blocking (the default)   as the program is written
 *   async                    each call is started, and a thread of the program dispatches
 *   loop                     the same, and the library may start no thread
 *
 * Include it after dlock.h, in a program with one client. Calls from within on_event block in every
 * form; only the file that makes the client may make such calls. */
#pragma once

#include "dlock.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct {
    dlock_client *client;
    pthread_t thread;
    int stop_fds[2];
} form;

static inline bool form_is(const char *name) {
    const char *wanted = getenv("DLOCK_FORM");
    return wanted != NULL && strcmp(wanted, name) == 0;
}

static inline bool form_is_async(void) {
    return form_is("async") || form_is("loop");
}

static inline void *form_dispatch(void *arg) {
    struct pollfd sources[] = {{.fd = dlock_client_fd(form.client), .events = POLLIN},
                               {.fd = form.stop_fds[0], .events = POLLIN}};
    do {
        poll(sources, 2, -1);
        dlock_client_dispatch(form.client);
    } while (sources[1].revents == 0);
    return arg;
}

static inline dlock_status form_client_new(dlock_client **out, const dlock_client_options *given) {
    dlock_client_options options = *given;
    options.no_threads = form_is("loop");
    dlock_status status = dlock_client_new(out, &options);
    if (status != DLOCK_OK || !form_is_async()) return status;
    form.client = *out;
    if (pipe(form.stop_fds) != 0) abort();
    if (pthread_create(&form.thread, NULL, form_dispatch, NULL) != 0) abort();
    return status;
}

static inline void form_client_free(dlock_client *client) {
    if (client != NULL && form_is_async()) {
        if (write(form.stop_fds[1], ".", 1) != 1) abort();
        pthread_join(form.thread, NULL);
    }
    dlock_client_free(client);
}

/* -- a call: start, then wait for done() */

typedef struct form_call {
    pthread_mutex_t mutex;
    pthread_cond_t is_told;
    int count;
    dlock_status status;
} form_call;

static inline void form_done(void *arg, dlock_lock *lock, dlock_status status) {
    (void)lock;
    form_call *call = arg;
    pthread_mutex_lock(&call->mutex);
    call->count++;
    call->status = status;
    pthread_cond_signal(&call->is_told);
    pthread_mutex_unlock(&call->mutex);
}

static inline dlock_status form_wait(form_call *call, dlock_status started) {
    if (started != DLOCK_OK) return started;
    pthread_mutex_lock(&call->mutex);
    while (call->count == 0)
        pthread_cond_wait(&call->is_told, &call->mutex);
    pthread_mutex_unlock(&call->mutex);
    return call->status;
}

#define FORM_CALL                                                                                  \
    { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, DLOCK_OK }

static inline bool form_blocks(void) {
    return !form_is_async() || pthread_equal(form.thread, pthread_self());
}

static inline dlock_status form_acquire(dlock_lock *lock, int64_t wait_ms) {
    form_call call = FORM_CALL;
    if (form_blocks()) return dlock_acquire(lock, wait_ms);
    return form_wait(&call, dlock_acquire_start(lock, wait_ms, form_done, &call));
}

static inline dlock_status form_extend(dlock_lock *lock, uint32_t lease_ms) {
    form_call call = FORM_CALL;
    if (form_blocks()) return dlock_extend(lock, lease_ms);
    return form_wait(&call, dlock_extend_start(lock, lease_ms, form_done, &call));
}

static inline dlock_status form_release(dlock_lock *lock) {
    form_call call = FORM_CALL;
    if (form_blocks()) return dlock_release(lock);
    return form_wait(&call, dlock_release_start(lock, form_done, &call));
}

#define dlock_client_new  form_client_new
#define dlock_client_free form_client_free
#define dlock_acquire     form_acquire
#define dlock_extend      form_extend
#define dlock_release     form_release
