/* SPDX-License-Identifier: BSD-3-Clause */
/* overshoot.c - how much later than its wait an acquire comes back that cannot succeed.
 *
 *   overshoot URL TRIES WAIT_MAX_MS IO_TIMEOUT_MS STATUS
 *
 * Waits are random up to WAIT_MAX_MS; each must end with STATUS (its name; several with commas).
 * Beside it, on every core, a thread sleeps for a moment again and again: what it is late, the
 * machine is late by itself. A try during which one of them was late by more than a millisecond
 * says nothing, and is made again. Prints for each that counts how late it was, in microseconds,
 * and then, after a word, how many did not count. */
#include "dlock.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { NAP_US = 500, LATE_US = 1000, TRIES_MORE = 20 };

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* The end of the last nap that was late. */
static atomic_llong late_at_us;

static void *nap(void *data) {
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET((size_t)(intptr_t)data, &core);
    pthread_setaffinity_np(pthread_self(), sizeof(core), &core);
    for (;;) {
        int64_t begin_us = now_us();
        nanosleep(&(struct timespec){.tv_nsec = NAP_US * 1000}, NULL);
        int64_t end_us = now_us();
        if (end_us - begin_us > NAP_US + LATE_US) atomic_store(&late_at_us, end_us);
    }
    return NULL;
}

static void start_naps(void) {
    for (intptr_t core = 0; core < sysconf(_SC_NPROCESSORS_ONLN); core++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, nap, (void *)core) != 0) exit(1);
    }
}

/* One nap more, and those that went on meanwhile are over. */
static bool was_machine_late(int64_t since_us) {
    nanosleep(&(struct timespec){.tv_nsec = 2 * NAP_US * 1000}, NULL);
    return atomic_load(&late_at_us) >= since_us;
}

static dlock_lock *make_lock(const char *url, uint32_t io_timeout_ms, dlock_client **client) {
    dlock_lock *lock;
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = &url;
    options.url_count = 1;
    options.io_timeout_ms = io_timeout_ms;
    if (dlock_client_new(client, &options) != DLOCK_OK) exit(1);
    if (dlock_lock_new(&lock, *client, "overshoot", NULL) != DLOCK_OK) exit(1);
    return lock;
}

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    int tries = atoi(argv[2]), wait_max_ms = atoi(argv[3]), discarded = 0;
    dlock_client *client = NULL;
    dlock_lock *lock = make_lock(argv[1], (uint32_t)strtoul(argv[4], NULL, 10), &client);
    start_naps();
    srand(1);
    for (int done = 0; done < tries;) {
        int64_t wait_ms = rand() % (wait_max_ms + 1), begin_us = now_us();
        dlock_status status = dlock_acquire(lock, wait_ms);
        int64_t late_us = now_us() - begin_us - wait_ms * 1000;
        if (was_machine_late(begin_us)) {
            if (++discarded > tries * TRIES_MORE) return 1;
            continue;
        }
        if (strstr(argv[5], dlock_status_name(status)) == NULL) {
            fprintf(stderr, "overshoot: %s: %s\n", dlock_status_name(status),
                    dlock_last_error(lock));
            return 1;
        }
        printf("%lld\n", (long long)late_us);
        done++;
    }
    printf("discarded %d\n", discarded);
    dlock_lock_free(lock);
    dlock_client_free(client);
    return 0;
}
