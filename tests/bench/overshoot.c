/* SPDX-License-Identifier: BSD-3-Clause */
/* overshoot.c - how much later than its wait an acquire comes back that cannot succeed.
 *
 *   overshoot URL TRIES WAIT_MAX_MS IO_TIMEOUT_MS STATUS
 *   overshoot sleep TRIES WAIT_MAX_MS
 *
 * Waits are random up to WAIT_MAX_MS; each must end with STATUS (its name). "sleep" sleeps instead:
 * what the machine itself is late. Prints for each how late it was, in microseconds. */
#include "dlock.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void sleep_ms(int64_t wait_ms) {
    struct timespec pause = {.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
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

/* Status names, separated by commas. */
static void check(const dlock_lock *lock, dlock_status status, const char *allowed) {
    if (strstr(allowed, dlock_status_name(status)) != NULL) return;
    fprintf(stderr, "overshoot: %s: %s\n", dlock_status_name(status), dlock_last_error(lock));
    exit(1);
}

int main(int argc, char **argv) {
    bool is_sleep = argc == 4 && strcmp(argv[1], "sleep") == 0;
    if (argc != 6 && !is_sleep) return 2;
    int tries = atoi(argv[2]), wait_max_ms = atoi(argv[3]);
    dlock_client *client = NULL;
    dlock_lock *lock =
        is_sleep ? NULL : make_lock(argv[1], (uint32_t)strtoul(argv[4], NULL, 10), &client);
    srand(1);
    for (int i = 0; i < tries; i++) {
        int64_t wait_ms = rand() % (wait_max_ms + 1), begin_us = now_us();
        if (is_sleep)
            sleep_ms(wait_ms);
        else
            check(lock, dlock_acquire(lock, wait_ms), argv[5]);
        printf("%lld\n", (long long)(now_us() - begin_us - wait_ms * 1000));
    }
    dlock_lock_free(lock);
    dlock_client_free(client);
    return 0;
}
