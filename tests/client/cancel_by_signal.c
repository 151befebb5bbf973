/* SPDX-License-Identifier: BSD-3-Clause */
/* cancel_by_signal.c - waits for a lock until a signal says otherwise.
 *
 *   cancel_by_signal URL server|spin now|later
 *
 * SIGTERM and SIGINT cancel the wait in their handler, SIGUSR1 is caught and means nothing. now: a
 * SIGTERM of its own comes before the wait. Prints the status of the acquire. */
#include "dlock.h"

#include <signal.h>
#include <stdio.h>

static dlock_lock *lock;

static void on_end(int number) {
    (void)number;
    dlock_cancel(lock);
}

static void on_nothing(int number) {
    (void)number;
}

static void catch_signal(int number, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler};
    sigaction(number, &action, NULL);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = (const char *const[]){argv[1]};
    options.url_count = 1;
    options.io_timeout_ms = 20000; /* sanitizers are slow */
    options.wait_mode = strcmp(argv[2], "spin") == 0 ? DLOCK_WAIT_SPIN : DLOCK_WAIT_SERVER;
    dlock_client *client;
    if (dlock_client_new(&client, &options) != DLOCK_OK) return 2;
    if (dlock_lock_new(&lock, client, "lock", NULL) != DLOCK_OK) return 2;
    catch_signal(SIGTERM, on_end);
    catch_signal(SIGINT, on_end);
    catch_signal(SIGUSR1, on_nothing);
    if (strcmp(argv[3], "now") == 0) raise(SIGTERM);
    dlock_status status = dlock_acquire(lock, DLOCK_WAIT_FOREVER);
    printf("%s\n", dlock_status_name(status));
    dlock_lock_free(lock);
    dlock_client_free(client);
    return 0;
}
