/* SPDX-License-Identifier: BSD-3-Clause */
/* redlock.c - one thread that takes a lock and gives it back, and how long each takes.
 *
 *   redlock TRIES IO_TIMEOUT_MS URL...
 *
 * Prints a line for each try: microseconds of the acquire and of the release. */
#include "dlock.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WAIT_MS = 10000 };

static long long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void fail(const char *what) {
    fprintf(stderr, "redlock: %s\n", what);
    exit(1);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    int tries = atoi(argv[1]);
    dlock_client *client;
    dlock_lock *lock;
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.io_timeout_ms = (unsigned)atoi(argv[2]);
    options.urls = (const char *const *)argv + 3;
    options.url_count = (size_t)argc - 3;
    if (dlock_client_new(&client, &options) != DLOCK_OK) fail("dlock_client_new");
    if (dlock_lock_new(&lock, client, "redlock", NULL) != DLOCK_OK) fail("dlock_lock_new");
    for (int i = 0; i < tries; i++) {
        long long begin_us = now_us();
        if (dlock_acquire(lock, WAIT_MS) != DLOCK_OK) fail(dlock_last_error(lock));
        long long held_us = now_us();
        dlock_release(lock); /* if the machine stalls, it goes on in the background */
        printf("%lld %lld\n", held_us - begin_us, now_us() - held_us);
    }
    dlock_lock_free(lock);
    dlock_client_free(client);
    return 0;
}
