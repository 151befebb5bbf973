/* SPDX-License-Identifier: BSD-3-Clause */
/* answered.c - a lock that a handler of the program grants is unknown to the service, and is not
 * lost because of that.
 *
 *   answered URL
 *
 * The handler answers for the name "local". The name "remote" is held at the service, and taken
 * away there: once the loss of "remote" is told, a loss of "local" would have been told as well. */
#include "dlock_spi.h"

#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static sem_t is_remote_lost;

static dlock_step enter(void *arg, dlock_call *call) {
    (void)arg;
    struct timespec now;
    if (strcmp(call->name, "local") != 0) return DLOCK_PASS;
    clock_gettime(CLOCK_BOOTTIME, &now);
    call->asked_us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    call->status = DLOCK_OK;
    return DLOCK_ANSWER;
}

static void on_event(void *arg, dlock_event event, const char *name, dlock_status why) {
    (void)arg, (void)why;
    if (event == DLOCK_EVENT_LOST && strcmp(name, "remote") == 0) sem_post(&is_remote_lost);
}

static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, dlock_error());
    return 1;
}

int main(int argc, char **argv) {
    dlock_handler handler = {.struct_size = sizeof(handler), .name = "local", .enter = enter};
    const dlock_handler *handlers[] = {&handler};
    const char *urls[] = {argc == 2 ? argv[1] : ""};
    dlock_client_options options;
    dlock_client *client;
    dlock_lock *local, *remote;
    char why[200];
    sem_init(&is_remote_lost, 0, 0);
    dlock_client_options_init(&options);
    options.urls = urls;
    options.url_count = 1;
    options.handlers = handlers;
    options.handler_count = 1;
    options.on_event = on_event;
    if (dlock_client_new(&client, &options) != DLOCK_OK) return fail("client");
    if (dlock_lock_new(&local, client, "local", NULL) != DLOCK_OK) return fail("local");
    if (dlock_lock_new(&remote, client, "remote", NULL) != DLOCK_OK) return fail("remote");
    if (dlock_acquire(local, 0) != DLOCK_OK) return fail(dlock_last_error(local));
    if (dlock_acquire(remote, 0) != DLOCK_OK) return fail(dlock_last_error(remote));
    if (dlock_release_token(client, "remote", dlock_token(remote), why, sizeof(why)) != DLOCK_OK)
        return fail(why);
    sem_wait(&is_remote_lost);
    bool is_held = dlock_get_state(local) == DLOCK_STATE_HELD && dlock_extend(local, 0) == DLOCK_OK;
    dlock_lock_free(remote);
    dlock_lock_free(local);
    dlock_client_free(client);
    sem_destroy(&is_remote_lost);
    return is_held ? 0 : fail("the local lock was lost");
}
