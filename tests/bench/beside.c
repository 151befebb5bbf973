/* SPDX-License-Identifier: BSD-3-Clause */
/* beside.c - one thread takes and gives back a free lock, while others of the same client wait.
 *
 *   beside PORT PAIRS WAITERS
 *
 * WAITERS threads wait in the queue of the server for the lock "beside: busy", which somebody else
 * holds. Prints how long each pair of the main thread took, in microseconds. */
#include "dlock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WAITERS_MAX = 1000, PATIENCE_MS = 60000 };

static dlock_client *client;
static dlock_lock *waiting[WAITERS_MAX];

static void fail(const char *what) {
    fprintf(stderr, "beside: %s\n", what);
    exit(1);
}

static dlock_lock *make_lock(const char *name) {
    dlock_lock *lock;
    if (dlock_lock_new(&lock, client, name, NULL) != DLOCK_OK) fail("dlock_lock_new");
    return lock;
}

static void *await(void *arg) {
    if (dlock_acquire(arg, PATIENCE_MS) != DLOCK_CANCELED) fail("the busy lock was not busy");
    return NULL;
}

static bool count_waiters(void *arg, const dlock_inspection *lock) {
    *(int64_t *)arg = lock->waiters;
    return true;
}

static void await_queue(int64_t count) {
    const struct timespec pause = {.tv_nsec = 5000000};
    for (int64_t queued = 0; queued < count; nanosleep(&pause, NULL))
        if (dlock_inspect(client, "beside: busy", 5000, count_waiters, &queued, NULL, 0) !=
            DLOCK_OK)
            fail("nobody holds the busy lock");
}

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void measure(int pairs) {
    dlock_lock *lock = make_lock("beside: free");
    for (int i = 0; i < pairs; i++) {
        double begin_us = now_us();
        if (dlock_acquire(lock, 1000) != DLOCK_OK || dlock_release(lock) != DLOCK_OK)
            fail(dlock_last_error(lock));
        printf("%.1f\n", now_us() - begin_us);
    }
    dlock_lock_free(lock);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int waiters = atoi(argv[3]);
    if (waiters < 0 || waiters > WAITERS_MAX) return 2;
    char url[64];
    snprintf(url, sizeof(url), "redis://127.0.0.1:%s", argv[1]);
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = (const char *const[]){url};
    options.url_count = 1;
    options.io_timeout_ms = 5000;
    if (dlock_client_new(&client, &options) != DLOCK_OK) fail("dlock_client_new");
    pthread_t threads[WAITERS_MAX];
    for (int i = 0; i < waiters; i++) {
        waiting[i] = make_lock("beside: busy");
        if (pthread_create(&threads[i], NULL, await, waiting[i]) != 0) fail("pthread_create");
    }
    if (waiters > 0) await_queue(waiters);
    measure(atoi(argv[2]));
    for (int i = 0; i < waiters; i++) {
        dlock_cancel(waiting[i]);
        pthread_join(threads[i], NULL);
        dlock_lock_free(waiting[i]);
    }
    dlock_client_free(client);
    return 0;
}
