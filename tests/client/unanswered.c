/* SPDX-License-Identifier: BSD-3-Clause */
/* unanswered.c - threads that take and give back renewed locks at a server that never answers an
 * EXTEND; for the sanitizers.
 *
 *   unanswered URL THREADS ROUNDS
 *
 * Renewals time out, go on, and are abandoned, just when the lock is released or extended: each
 * round is a little longer than the round before. */
#include "program.h"

#include <stdatomic.h>

enum { IO_MS = 10, RENEW_EVERY_MS = 20, WAIT_MS = 60000 };
enum { HOLD_FIRST_US = 15000, HOLD_STEP_US = 500, HOLD_MAX_US = 45000 };

static dlock_client *client;
static atomic_int acquired, failures;
static int rounds;

static void *work(void *arg) {
    char name[32];
    dlock_lock *lock;
    dlock_lock_options options = terms_of(60000, DLOCK_EXCLUSIVE);
    options.renew_every_ms = RENEW_EVERY_MS;
    snprintf(name, sizeof(name), "unanswered:%d", (int)(intptr_t)arg);
    CHECK(dlock_lock_new(&lock, client, name, &options) == DLOCK_OK);
    for (int i = 0; i < rounds; i++) {
        if (dlock_acquire(lock, WAIT_MS) != DLOCK_OK) {
            fprintf(stderr, "%s: %s\n", name, dlock_last_error(lock));
            atomic_fetch_add(&failures, 1);
            continue;
        }
        atomic_fetch_add(&acquired, 1);
        pause_us(HOLD_FIRST_US + (long)i * HOLD_STEP_US % (HOLD_MAX_US - HOLD_FIRST_US));
        if (i % 4 == 0) dlock_extend(lock, 0);
        if (dlock_get_state(lock) == DLOCK_STATE_LOST) atomic_fetch_add(&failures, 1);
        dlock_release(lock); /* may be in doubt: the connection can be the silent one */
    }
    dlock_lock_free(lock);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    rounds = atoi(argv[3]);
    dlock_client_options options = options_for((const char *const *)&argv[1], 1);
    options.io_timeout_ms = IO_MS;
    CHECK(dlock_client_new(&client, &options) == DLOCK_OK);
    run_threads(atoi(argv[2]), work);
    dlock_client_free(client);
    printf("%d acquired, %d failures\n", atomic_load(&acquired), atomic_load(&failures));
    return atomic_load(&failures) == 0 ? 0 : 1;
}
