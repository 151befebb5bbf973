/* SPDX-License-Identifier: BSD-3-Clause */
/* poll_loop.c - many locks in one thread, with poll(2) and asynchronous calls.
 *
 *   cc -o poll_loop poll_loop.c $(pkg-config --cflags --libs dlock)
 *   ./poll_loop redis://127.0.0.1:6379 NAME...
 *
 * Takes all the locks at the same time, and gives each back as soon as it has it. The library
 * starts no thread. A real program polls its own descriptors beside the one of the client.
 *
 * Exit code 0: each lock was ours for a moment. 1: one was not. 2: called in a wrong way. */
#include <dlock.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>

enum { WAIT_MS = 5000 };

static int under_way, failures;

static void end(dlock_lock *lock, const char *name, dlock_status status) {
    if (status != DLOCK_OK) {
        fprintf(stderr, "poll_loop: %s: %s: %s\n", name, dlock_status_text(status),
                dlock_last_error(lock));
        failures++;
    }
    dlock_lock_free(lock); /* done() may do that: nothing uses the lock after it */
    under_way--;
}

static void released(void *name, dlock_lock *lock, dlock_status status) {
    if (status == DLOCK_OK) printf("%s is given back\n", (const char *)name);
    end(lock, name, status);
}

static void acquired(void *name, dlock_lock *lock, dlock_status status) {
    if (status == DLOCK_OK) {
        printf("%s is ours, with fence %" PRIu64 "\n", (const char *)name, dlock_fence(lock));
        status = dlock_release_start(lock, released, name);
        if (status == DLOCK_OK) return;
    }
    end(lock, name, status);
}

static void start(dlock_client *client, char *name) {
    dlock_lock *lock;
    dlock_status status = dlock_lock_new(&lock, client, name, NULL);
    if (status != DLOCK_OK) {
        fprintf(stderr, "poll_loop: no lock: %s\n", dlock_error());
        failures++;
        return;
    }
    under_way++;
    status = dlock_acquire_start(lock, WAIT_MS, acquired, name);
    if (status != DLOCK_OK) end(lock, name, status); /* acquired() is not called */
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: poll_loop URL NAME...\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = (const char *const *)&argv[1];
    options.url_count = 1;
    options.no_threads = true;
    dlock_client *client;
    if (dlock_client_new(&client, &options) != DLOCK_OK) {
        fprintf(stderr, "poll_loop: no client: %s\n", dlock_error());
        return 2;
    }
    for (int i = 2; i < argc; i++)
        start(client, argv[i]);

    struct pollfd sources[] = {{.fd = dlock_client_fd(client), .events = POLLIN}};
    while (under_way > 0) {
        poll(sources, 1, -1);
        if (sources[0].revents != 0) dlock_client_dispatch(client);
    }
    dlock_client_free(client);
    return failures > 0;
}
