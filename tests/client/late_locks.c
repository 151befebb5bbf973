/* SPDX-License-Identifier: BSD-3-Clause */
/* late_locks.c - locks that are freed after their client. late_locks URL FACT
 *
 * Under AddressSanitizer memory that is used too late, or never freed, ends the program. */
#include <dlock.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (condition) break;                                                                      \
        fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                    \
        exit(1);                                                                                   \
    } while (0)

static dlock_client *client;

static dlock_lock *new_lock(const char *name) {
    dlock_lock_options options;
    dlock_lock_options_init(&options);
    options.lease_ms = 60000;
    options.renew = true;
    dlock_lock *lock;
    MUST(dlock_lock_new(&lock, client, name, &options) == DLOCK_OK);
    return lock;
}

/* A lock that is held, and one that was never used. */
static void locks_work_until_they_are_freed(void) {
    dlock_lock *held = new_lock("held"), *unused = new_lock("unused");
    MUST(dlock_acquire(held, 5000) == DLOCK_OK);
    dlock_client_free(client);
    MUST(dlock_get_state(held) == DLOCK_STATE_HELD);
    MUST(dlock_extend(held, 0) == DLOCK_OK);
    MUST(dlock_release(held) == DLOCK_OK);
    MUST(dlock_acquire(held, 5000) == DLOCK_OK);
    dlock_lock_free(unused);
    dlock_lock_free(held);
}

static void free_both(void *arg, dlock_lock *lock, dlock_status status) {
    MUST(status == DLOCK_OK);
    *(int *)arg = 1;
    dlock_client_free(client);
    dlock_lock_free(lock);
}

static void both_are_freed_by_the_function_that_is_told(void) {
    struct pollfd source = {.fd = dlock_client_fd(client), .events = POLLIN};
    int is_told = 0;
    MUST(dlock_acquire_start(new_lock("asked"), 5000, free_both, &is_told) == DLOCK_OK);
    while (!is_told) {
        MUST(poll(&source, 1, 60000) == 1);
        dlock_client_dispatch(client);
    }
}

int main(int argc, char **argv) {
    MUST(argc == 3);
    MUST(dlock_client_new_url(&client, argv[1]) == DLOCK_OK);
    if (strcmp(argv[2], "locks_work_until_they_are_freed") == 0)
        locks_work_until_they_are_freed();
    else
        both_are_freed_by_the_function_that_is_told();
    return 0;
}
