/* SPDX-License-Identifier: BSD-3-Clause */
/* answered_release.c - a handler of the program answers the first release. Whatever the answer is,
 * other threads of the process get the lock: at once, or when the lease has ended.
 *
 *   answered_release URL refused|taken [hot] */
#include "dlock_spi.h"

#include <stdio.h>
#include <string.h>

enum { WAIT_MS = 30000 };

static dlock_status answer;
static int releases;

static dlock_step enter(void *arg, dlock_call *call) {
    (void)arg;
    if (call->operation != DLOCK_RELEASING || releases++ > 0) return DLOCK_PASS;
    call->status = answer;
    return DLOCK_ANSWER;
}

static int fail(const char *what, dlock_status status) {
    fprintf(stderr, "%s: %s\n", what, dlock_status_name(status));
    return 1;
}

int main(int argc, char **argv) {
    dlock_handler handler = {.struct_size = sizeof(handler), .name = "answering", .enter = enter};
    const dlock_handler *handlers[] = {&handler};
    const char *urls[] = {argc > 2 ? argv[1] : ""};
    bool is_taken = argc > 2 && strcmp(argv[2], "taken") == 0;
    dlock_client_options options;
    dlock_lock_options terms;
    dlock_client *client;
    dlock_lock *first, *second;
    dlock_client_options_init(&options);
    options.urls = urls;
    options.url_count = 1;
    options.handlers = handlers;
    options.handler_count = 1;
    dlock_lock_options_init(&terms);
    terms.lease_ms = 2 * WAIT_MS;
    answer = is_taken ? DLOCK_OK : DLOCK_LIMITED;
    dlock_status status = dlock_client_new(&client, &options);
    if (status != DLOCK_OK) return fail("client", status);
    if (argc > 3) dlock_hotspot_add(client, "lock");
    dlock_lock_new(&second, client, "lock", &terms);
    if (is_taken) terms.lease_ms = 1000; /* the second waits for its end */
    dlock_lock_new(&first, client, "lock", &terms);
    if ((status = dlock_acquire(first, WAIT_MS)) != DLOCK_OK) return fail("the first", status);
    if ((status = dlock_release(first)) != answer) return fail("the release", status);
    dlock_lock_free(first);
    if ((status = dlock_acquire(second, WAIT_MS)) != DLOCK_OK) return fail("the second", status);
    if ((status = dlock_release(second)) != DLOCK_OK) return fail("the second release", status);
    dlock_lock_free(second);
    dlock_client_free(client);
    return 0;
}
