/* SPDX-License-Identifier: BSD-3-Clause */
/* claim.c - see claim.h. */
#include "claim.h"

#include "complain.h"
#include "connect.h"
#include "json.h"
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_FIRST_MS = 10, LOOK_MAX_MS = 200, WHY_SIZE = 300 };

/* -- acquire */

static dlock_lock *volatile awaited;
static volatile sig_atomic_t canceled_by;

static void on_signal(int number) {
    canceled_by = number;
    if (awaited != NULL) dlock_cancel(awaited);
}

static void catch_signals(dlock_lock *lock) {
    struct sigaction cancel = {.sa_handler = on_signal};
    awaited = lock;
    sigaction(SIGINT, &cancel, NULL);
    sigaction(SIGTERM, &cancel, NULL);
    sigaction(SIGHUP, &cancel, NULL);
}

/* False: nobody can read it. */
static bool show_grant(const request *asked, const dlock_lock *lock) {
    if (asked->is_json) {
        json_object_begin(NULL);
        json_text("name", asked->words[0]);
        json_text("token", dlock_token(lock));
        json_number("fence", (int64_t)dlock_fence(lock));
        json_number("lease_ms", asked->lease_ms);
        json_object_end();
    } else {
        puts(dlock_token(lock));
    }
    return fflush(stdout) == 0;
}

static int take(const request *asked, dlock_lock *lock) {
    catch_signals(lock);
    dlock_status status = connect_acquire(lock, asked->wait_ms);
    awaited = NULL;
    if (status == DLOCK_OK && canceled_by == 0) {
        /* It stays held: nothing may be freed, as that would give it back. */
        if (show_grant(asked, lock)) _exit(EXIT_CODE_OK);
        complain("the token cannot be written: the lock is given back");
        return EXIT_CODE_INTERNAL;
    }
    if (canceled_by != 0) return EXIT_CODE_SIGNAL + canceled_by;
    if (status == DLOCK_BUSY || status == DLOCK_TIMEOUT) return (int)asked->busy_code;
    return (int)complain_status(asked->words[0], status, dlock_last_error(lock));
}

int claim_acquire(request *asked) {
    int code;
    dlock_lock *lock;
    dlock_lock_options how;
    dlock_client *client = connect_client(asked, &code);
    if (client == NULL) return code;
    dlock_lock_options_init(&how);
    how.lease_ms = (uint32_t)asked->lease_ms;
    how.min_replicas = (uint32_t)asked->min_replicas;
    dlock_status status = dlock_lock_new(&lock, client, asked->words[0], &how);
    if (status == DLOCK_OK)
        code = take(asked, lock);
    else
        code = (int)complain_status("not a lock that can be had here", status, "");
    dlock_lock_free(lock);
    dlock_client_free(client);
    return code;
}

/* -- release and extend */

static int show_change(const request *asked, dlock_status status, const char *fact,
                       const char *why) {
    bool is_answered = status == DLOCK_OK || status == DLOCK_NOT_HELD;
    if (asked->is_json && is_answered) {
        json_object_begin(NULL);
        json_text("name", asked->words[0]);
        json_fact(fact, status == DLOCK_OK);
        json_object_end();
        return (int)exit_code_of(status);
    }
    if (status == DLOCK_NOT_HELD) complain("%s: the token does not hold it", asked->words[0]);
    if (is_answered) return (int)exit_code_of(status);
    return (int)complain_status(asked->words[0], status, why);
}

int claim_release(request *asked) {
    int code;
    char why[WHY_SIZE];
    dlock_client *client = connect_client(asked, &code);
    if (client == NULL) return code;
    dlock_status status =
        dlock_release_token(client, asked->words[0], asked->words[1], why, sizeof(why));
    dlock_client_free(client);
    return show_change(asked, status, "released", why);
}

int claim_extend(request *asked) {
    int code;
    char why[WHY_SIZE];
    dlock_client *client = connect_client(asked, &code);
    if (client == NULL) return code;
    dlock_status status = dlock_extend_token(client, asked->words[0], asked->words[1],
                                             (uint32_t)asked->lease_ms, why, sizeof(why));
    dlock_client_free(client);
    return show_change(asked, status, "extended", why);
}

/* -- wait */

static bool is_seen(void *arg, const dlock_inspection *lock) {
    (void)arg;
    (void)lock;
    return true;
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Looks, and does not queue up: who only wants to know must not be in anybody's way. */
static dlock_status wait_until_free(const request *asked, dlock_client *client, char *why) {
    int64_t patience_ms = asked->connect_timeout_ms + asked->io_timeout_ms;
    int64_t until_ms = asked->wait_ms < 0 ? INT64_MAX : now_ms() + asked->wait_ms;
    int64_t pause_ms = LOOK_FIRST_MS;
    for (;;) {
        dlock_status status =
            dlock_inspect(client, asked->words[0], patience_ms, is_seen, NULL, why, WHY_SIZE);
        int64_t left_ms = until_ms - now_ms();
        if (status != DLOCK_OK) return status;
        if (left_ms <= 0) return DLOCK_TIMEOUT;
        if (pause_ms > left_ms) pause_ms = left_ms;
        nanosleep(&(struct timespec){.tv_nsec = pause_ms * 1000000}, NULL);
        pause_ms = pause_ms * 2 < LOOK_MAX_MS ? pause_ms * 2 : LOOK_MAX_MS;
    }
}

int claim_wait(request *asked) {
    int code;
    char why[WHY_SIZE];
    dlock_client *client = connect_client(asked, &code);
    if (client == NULL) return code;
    dlock_status status = wait_until_free(asked, client, why);
    dlock_client_free(client);
    bool is_free = status == DLOCK_NOT_HELD;
    if (!is_free && status != DLOCK_TIMEOUT)
        return (int)complain_status(asked->words[0], status, why);
    if (asked->is_json) {
        json_object_begin(NULL);
        json_text("name", asked->words[0]);
        json_fact("free", is_free);
        json_object_end();
    }
    return is_free ? EXIT_CODE_OK : (int)asked->busy_code;
}
