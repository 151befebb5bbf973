/* SPDX-License-Identifier: BSD-3-Clause */
/* unanswered.c - threads that take and give back renewed locks at a server that never answers an
 * EXTEND; for the sanitizers.
 *
 *   unanswered URL THREADS ROUNDS
 *
 * Renewals time out, go on, and are abandoned, just when the lock is released or extended: each
 * round is a little longer than the round before. */
#include "dlock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS_MAX = 16, IO_MS = 10, RENEW_EVERY_MS = 20, WAIT_MS = 60000 };
enum { HOLD_FIRST_US = 15000, HOLD_STEP_US = 500, HOLD_MAX_US = 45000 };

static dlock_client *client;
static atomic_int acquired, failures;
static int rounds;

static void hold(int round) {
    long us = HOLD_FIRST_US + (long)round * HOLD_STEP_US % (HOLD_MAX_US - HOLD_FIRST_US);
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static void *work(void *arg) {
    char name[32];
    dlock_lock *lock;
    dlock_lock_options options;
    dlock_lock_options_init(&options);
    options.lease_ms = 60000;
    options.renew_every_ms = RENEW_EVERY_MS;
    snprintf(name, sizeof(name), "unanswered:%d", (int)(intptr_t)arg);
    if (dlock_lock_new(&lock, client, name, &options) != DLOCK_OK) {
        atomic_fetch_add(&failures, 1);
        return NULL;
    }
    for (int i = 0; i < rounds; i++) {
        if (dlock_acquire(lock, WAIT_MS) != DLOCK_OK) {
            fprintf(stderr, "%s: %s\n", name, dlock_last_error(lock));
            atomic_fetch_add(&failures, 1);
            continue;
        }
        atomic_fetch_add(&acquired, 1);
        hold(i);
        if (i % 4 == 0) dlock_extend(lock, 0);
        if (dlock_get_state(lock) == DLOCK_STATE_LOST) atomic_fetch_add(&failures, 1);
        dlock_release(lock); /* may be in doubt: the connection can be the silent one */
    }
    dlock_lock_free(lock);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int threads = atoi(argv[2]);
    rounds = atoi(argv[3]);
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = (const char *const *)&argv[1];
    options.url_count = 1;
    options.io_timeout_ms = IO_MS;
    if (threads > THREADS_MAX || dlock_client_new(&client, &options) != DLOCK_OK) return 1;
    pthread_t workers[THREADS_MAX];
    for (int i = 0; i < threads; i++)
        if (pthread_create(&workers[i], NULL, work, (void *)(intptr_t)i) != 0) return 1;
    for (int i = 0; i < threads; i++)
        pthread_join(workers[i], NULL);
    dlock_client_free(client);
    printf("%d acquired, %d failures\n", atomic_load(&acquired), atomic_load(&failures));
    return atomic_load(&failures) == 0 ? 0 : 1;
}
