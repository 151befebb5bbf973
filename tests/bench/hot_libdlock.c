/* SPDX-License-Identifier: BSD-3-Clause */
/* hot_libdlock.c - the client library with its local hotspot layer: the threads queue up in the
 * process, and only the first of them asks the server. Requests are not counted by wire.c. */
#include "hot.h"
#include "wire.h"

#include "dlock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "hot"
enum { WAIT_MS = 600000, IO_TIMEOUT_MS = 5000 };

static dlock_client *client;

static void check(dlock_status status, const char *what) {
    errno = 0;
    if (status != DLOCK_OK) wire_fail(what);
}

static void prepare(int port, char **arguments) {
    char url[64];
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", port);
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = (const char *const[]){url};
    options.url_count = 1;
    options.io_timeout_ms = IO_TIMEOUT_MS;
    options.wait_mode = strcmp(arguments[0], "spin") == 0 ? DLOCK_WAIT_SPIN : DLOCK_WAIT_SERVER;
    options.spin_min_ms = (uint32_t)atoi(arguments[1]);
    options.spin_random_ms = (uint32_t)atoi(arguments[2]);
    options.hotspot_hand_on = (uint32_t)atoi(arguments[3]);
    check(dlock_client_new(&client, &options), "dlock_client_new");
    check(dlock_hotspot_add(client, NAME), "dlock_hotspot_add");
}

static void *open_contender(int port, int number) {
    (void)port, (void)number;
    dlock_lock *lock;
    check(dlock_lock_new(&lock, client, NAME, NULL), "dlock_lock_new");
    return lock;
}

static void acquire(void *lock) {
    dlock_status status = dlock_acquire(lock, WAIT_MS);
    check(status, dlock_last_error(lock));
}

static void release(void *lock) {
    dlock_status status = dlock_release(lock);
    check(status, dlock_last_error(lock));
}

const hot_way hot_libdlock = {
    .name = "libdlock",
    .argument_count = 4,
    .arguments = "spin|server PAUSE_MS RANDOM_MS HAND_ON",
    .prepare = prepare,
    .open = open_contender,
    .acquire = acquire,
    .release = release,
};
