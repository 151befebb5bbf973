/* SPDX-License-Identifier: BSD-3-Clause */
/* export_slots.c - at most five exports at a time across a fleet: a semaphore.
 *
 *   cc -o export_slots export_slots.c $(pkg-config --cflags --libs dlock)
 *   ./export_slots redis://127.0.0.1:6379 orders 2000
 *
 * Start as many as you like, on as many machines as you like: five of them export, each for so many
 * milliseconds, and the others wait in the order in which they came. Kill one with kill -9, and the
 * next one begins at once: the permit is tied to a connection (session), and so does not leak.
 * Nobody has to create the semaphore, and nothing is left behind when the last export is done. */
#include <dlock.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLOTS = 5, LEASE_MS = 30000 };

/* Stands for the export: any work that stops when the permit is lost. */
static bool export_for(dlock_lock *lock, int ms) {
    struct pollfd lost = {.fd = dlock_lost_fd(lock), .events = POLLIN};
    return poll(&lost, 1, ms) == 0;
}

static int run(dlock_lock *lock, const char *what, int ms) {
    dlock_status status = dlock_acquire(lock, DLOCK_WAIT_FOREVER);
    if (status != DLOCK_OK) {
        fprintf(stderr, "export_slots: no slot: %s\n", dlock_last_error(lock));
        return 1;
    }
    printf("exporting %s\n", what);
    fflush(stdout);
    bool is_done = export_for(lock, ms);
    status = dlock_release(lock);
    if (!is_done || status != DLOCK_OK) { /* others may have had the slot meanwhile */
        fprintf(stderr, "export_slots: the slot was lost: %s\n", dlock_status_text(status));
        return 1;
    }
    printf("exported %s\n", what);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: export_slots URL WHAT MILLISECONDS\n");
        return 2;
    }
    dlock_client *client;
    if (dlock_client_new_url(&client, argv[1]) != DLOCK_OK) {
        fprintf(stderr, "export_slots: no client: %s\n", dlock_error());
        return 2;
    }
    dlock_lock_options how;
    dlock_lock_options_init(&how);
    how.mode = DLOCK_SHARED;
    how.max_holders = SLOTS;
    how.session = DLOCK_YES;
    how.lease_ms = LEASE_MS;
    how.renew_every_ms = LEASE_MS / 3;
    how.owner = "export";
    dlock_lock *lock;
    int code = 1;
    if (dlock_lock_new(&lock, client, "exports", &how) == DLOCK_OK) {
        code = run(lock, argv[2], atoi(argv[3]));
    } else {
        fprintf(stderr, "export_slots: %s\n", dlock_error()); /* several servers cannot count */
    }
    dlock_lock_free(lock);
    dlock_client_free(client);
    return code;
}
