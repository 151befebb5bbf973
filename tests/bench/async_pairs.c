/* SPDX-License-Identifier: BSD-3-Clause */
/* async_pairs.c - one thread that takes locks and gives them back, again and again.
 *
 *   async_pairs PORT PIPELINE RUN_MS blocking|threads|loop
 *
 * blocking: one lock, one call after the other. threads, loop: PIPELINE locks, each with its next
 * call as soon as the last one is done; with a background thread of the library or without. Prints
 * the number of pairs. */
#include "dlock.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PIPELINE_MAX = 1024 };

static dlock_client *client;
static dlock_lock *locks[PIPELINE_MAX];
static long long pairs;
static int under_way;
static bool is_over;

static void check(dlock_status status, const dlock_lock *lock) {
    if (status == DLOCK_OK) return;
    fprintf(stderr, "async_pairs: %s: %s\n", dlock_status_name(status), dlock_last_error(lock));
    exit(1);
}

static void released(void *arg, dlock_lock *lock, dlock_status status);

static void acquired(void *arg, dlock_lock *lock, dlock_status status) {
    check(status, lock);
    check(dlock_release_start(lock, released, arg), lock);
}

static void released(void *arg, dlock_lock *lock, dlock_status status) {
    check(status, lock);
    pairs++;
    if (is_over)
        under_way--;
    else
        check(dlock_acquire_start(lock, 1000, acquired, arg), lock);
}

static long long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static void run_blocking(long long end_ms) {
    for (; now_ms() < end_ms; pairs++) {
        check(dlock_acquire(locks[0], 1000), locks[0]);
        check(dlock_release(locks[0]), locks[0]);
    }
}

static void run_loop(int pipeline, long long end_ms) {
    struct pollfd source = {.fd = dlock_client_fd(client), .events = POLLIN};
    for (under_way = 0; under_way < pipeline; under_way++)
        check(dlock_acquire_start(locks[under_way], 1000, acquired, NULL), locks[under_way]);
    while (under_way > 0) {
        poll(&source, 1, -1);
        dlock_client_dispatch(client);
        is_over = now_ms() >= end_ms;
    }
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    int pipeline = atoi(argv[2]);
    if (pipeline < 1 || pipeline > PIPELINE_MAX) return 2;
    char url[64], name[32];
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", atoi(argv[1]));
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = (const char *const[]){url};
    options.url_count = 1;
    options.io_timeout_ms = 5000;
    options.no_threads = strcmp(argv[4], "loop") == 0;
    if (dlock_client_new(&client, &options) != DLOCK_OK) return 2;
    for (int i = 0; i < pipeline; i++) {
        snprintf(name, sizeof(name), "pair %d", i);
        if (dlock_lock_new(&locks[i], client, name, NULL) != DLOCK_OK) return 2;
    }
    check(dlock_client_ping(client, 5000), locks[0]);
    long long end_ms = now_ms() + atoll(argv[3]);
    if (strcmp(argv[4], "blocking") == 0)
        run_blocking(end_ms);
    else
        run_loop(pipeline, end_ms);
    for (int i = 0; i < pipeline; i++)
        dlock_lock_free(locks[i]);
    dlock_client_free(client);
    printf("%lld\n", pairs);
    return 0;
}
