/* SPDX-License-Identifier: BSD-3-Clause */
/* quick_start.c - take a lock, look at it, give it back, and say what went wrong if anything did.
 *
 *   cc -o quick_start quick_start.c $(pkg-config --cflags --libs dlock)
 *   ./quick_start 'redis://127.0.0.1:6379?lease_ms=5000'
 *
 * Exit code 0: the lock was ours all the time. 1: it was not. 2: called in a wrong way. */
#include <dlock.h>
#include <inttypes.h>
#include <stdio.h>

enum { WAIT_MS = 2000 };

/* 1 to 99 are answers: the service works, and the lock is not ours. From 100 on nobody knows; try
 * again later, or look at the server. dlock_last_error() names the server and the cause. */
static int explain(const char *what, dlock_status status, const dlock_lock *lock) {
    const char *sense = status < DLOCK_IN_DOUBT ? "the answer is no" : "it could not be done";
    fprintf(stderr, "quick_start: %s: %s: %s (%s): %s\n", what, sense, dlock_status_text(status),
            dlock_status_name(status), dlock_last_error(lock));
    return 1;
}

static int use(dlock_lock *lock) {
    dlock_status status = dlock_acquire(lock, WAIT_MS);
    if (status != DLOCK_OK) return explain("acquire", status, lock);
    printf("it is ours, with fence %" PRIu64 "\n", dlock_fence(lock));

    /* Work that takes longer than this must dlock_extend() the lease, or must not be begun. */
    printf("it stays ours for %" PRId64 " ms\n", dlock_remaining_ms(lock));

    /* DLOCK_LOST here: the lease ended before, and somebody else may have had the lock since. */
    status = dlock_release(lock);
    if (status != DLOCK_OK) return explain("release", status, lock);
    printf("it is given back\n");
    return 0;
}

static int run(dlock_client *client) {
    dlock_lock *lock;
    dlock_status status = dlock_lock_new(&lock, client, "quick-start", NULL);
    if (status != DLOCK_OK) {
        fprintf(stderr, "quick_start: no lock: %s\n", dlock_error());
        return 1;
    }
    int exit_code = use(lock);
    dlock_lock_free(lock);
    return exit_code;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: quick_start URL\n");
        return 2;
    }
    dlock_client *client;
    dlock_status status = dlock_client_new_url(&client, argv[1]);
    if (status != DLOCK_OK) {
        fprintf(stderr, "quick_start: no client: %s\n", dlock_error());
        return status == DLOCK_INVALID ? 2 : 1;
    }
    int exit_code = run(client);
    dlock_client_free(client);
    return exit_code;
}
