/* SPDX-License-Identifier: BSD-3-Clause */
/* connect.c - see connect.h.
 *
 *   client    as the request wants it
 *   words     who holds a lock, and why it was not acquired
 *   acquire   in a way that a signal can end at any moment: the handler cancels the client */
#include "connect.h"

#include "complain.h"
#include "sightings.h"
#include "text.h"
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

/* -- the client */

/* A time that is too long for the field is also too long for the library, which says so. */
static uint32_t limit_ms(int64_t ms) {
    return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

dlock_client_options connect_options(const request *request) {
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = request->urls;
    options.url_count = (size_t)request->url_count;
    options.prefix = request->prefix;
    options.connect_timeout_ms = limit_ms(request->connect_timeout_ms);
    options.io_timeout_ms = limit_ms(request->io_timeout_ms);
    options.tls_ca_file = request->tls_ca_file;
    options.tls_cert_file = request->tls_cert_file;
    options.tls_key_file = request->tls_key_file;
    return options;
}

dlock_lock_options connect_lock_options(const request *request) {
    dlock_lock_options options;
    dlock_lock_options_init(&options);
    options.lease_ms = (uint32_t)request->lease_ms;
    options.min_replicas = (uint32_t)request->min_replicas;
    if (request->is_shared || request->slots > 0) options.mode = DLOCK_SHARED;
    if (request->slots > 0) options.max_holders = (uint32_t)request->slots;
    return options;
}

bool connect_check(const request *request) {
    int code;
    dlock_client *client = connect_client(request, &code);
    dlock_client_free(client);
    return client != NULL;
}

dlock_client *connect_client(const request *request, int *code) {
    dlock_client *made = NULL;
    dlock_client_options options = connect_options(request);
    dlock_status status = dlock_client_new(&made, &options);
    *code = exit_code_of(status);
    if (status != DLOCK_OK) complain("%s", dlock_error());
    return made;
}

/* -- in words */

void holder_describe(dlock_client *client, const request *request, const char *name, char *text,
                     size_t size) {
    char age[DURATION_SIZE], since[DURATION_SIZE + 8] = "", more[40] = "";
    sightings sightings = {0};
    text[0] = '\0';
    dlock_inspect(client, name, request->connect_timeout_ms + request->io_timeout_ms, sightings_add,
                  &sightings, NULL, 0);
    sightings_sort(&sightings, "age");
    if (sightings.count > 0) {
        const sighting *seen = &sightings.all[0];
        duration_show(seen->age_ms, age);
        if (seen->age_ms >= 0) snprintf(since, sizeof(since), " for %s", age);
        if (seen->lock.holders > 1)
            snprintf(more, sizeof(more), " and %" PRId64 " more", seen->lock.holders - 1);
        snprintf(text, size, "held by %s%s%s, %" PRId64 " waiting", seen->lock.token, more, since,
                 seen->lock.waiters);
    }
    sightings_clear(&sightings);
}

void connect_show_wait(const request *request, const char *name, const char *holder) {
    char limit[DURATION_SIZE];
    bool has_limit = request->wait_ms >= 0;
    duration_show(request->wait_ms, limit);
    complain("%s: waiting %s%s: %s", name, has_limit ? "for up to " : "without a limit",
             has_limit ? limit : "", holder[0] != '\0' ? holder : "another holds the lock");
}

/* By the command that the server refused: rules that the user has already are no help. */
static const char *find_rules(const char *cause) {
    if (strstr(cause, "'wait'") != NULL) return ACL_LOCK ", " ACL_REPLICAS;
    if (strstr(cause, "all' ") != NULL) return ACL_LOCK ", " ACL_SEVERAL;
    return ACL_LOCK;
}

int connect_explain(const request *request, const char *name, dlock_status status,
                    const char *text) {
    char waited[DURATION_SIZE];
    const char *holder = text[0] != '\0' ? text : "another holds the lock";
    duration_show(request->wait_ms, waited);
    if (status == DLOCK_TIMEOUT && !request->is_quiet)
        complain("%s: gave up after %s: %s", name, waited, holder);
    else if (status == DLOCK_BUSY && request->is_verbose)
        complain("%s: %s", name, holder);
    if (status == DLOCK_TIMEOUT || status == DLOCK_BUSY) return (int)request->busy_code;
    return (int)complain_query(request, name, status, text, find_rules(text));
}

/* -- acquire */

enum { TRIES_MAX = 4 };

static _Atomic(dlock_client *) asked;
static volatile sig_atomic_t canceled_by;

static void on_signal(int number) {
    if (canceled_by == 0) canceled_by = number;
    dlock_client_cancel(atomic_load(&asked));
}

void cancel_catch(const int signals[]) {
    struct sigaction cancel = {.sa_handler = on_signal};
    for (const int *number = signals; *number != 0; number++)
        sigaction(*number, &cancel, NULL);
}

int cancel_signal(void) {
    return canceled_by;
}

/* After a failed attempt: is the service not there? Several servers without a majority may be away,
 * or have split their votes. Split votes, missing replicas and servers that start are left to
 * dlock_acquire(), which tries again while time is left. */
static bool is_away(const request *request, dlock_client *client, dlock_status status) {
    if (status != DLOCK_NO_QUORUM) return status == DLOCK_UNREACHABLE || status == DLOCK_IN_DOUBT;
    int64_t timeout_ms = request->connect_timeout_ms + request->io_timeout_ms;
    return dlock_client_ping(client, timeout_ms) != DLOCK_OK;
}

/* The library votes again a few times if the votes of several servers are split; by then, a few in
 * a thousand pairs of machines that try at the same moment still have no winner. A job that nobody
 * runs is worse than a job that starts a second later. */
static dlock_status try_once(dlock_lock *lock) {
    dlock_status status = dlock_try_acquire(lock);
    for (int tries = 1; status == DLOCK_NO_QUORUM && tries < TRIES_MAX; tries++)
        status = dlock_try_acquire(lock);
    return status;
}

static dlock_status acquire(const request *request, dlock_client *client, dlock_lock *lock,
                            int64_t wait_ms, void (*on_busy)(void *arg), void *arg) {
    if (wait_ms == DLOCK_NO_WAIT) return try_once(lock);
    if (!request->is_patient || on_busy != NULL) {
        dlock_status status = dlock_try_acquire(lock);
        if (status == DLOCK_OK) return status;
        if (!request->is_patient && is_away(request, client, status)) return status;
        if (status == DLOCK_BUSY && on_busy != NULL) on_busy(arg);
    }
    return dlock_acquire(lock, wait_ms);
}

dlock_status cancel_acquire(const request *request, dlock_client *client, dlock_lock *lock,
                            int64_t wait_ms, void (*on_busy)(void *arg), void *arg) {
    atomic_store(&asked, client);
    if (canceled_by != 0) dlock_client_cancel(client);
    dlock_status status = acquire(request, client, lock, wait_ms, on_busy, arg);
    atomic_store(&asked, NULL);
    if (canceled_by == 0) return status;
    if (status == DLOCK_OK) dlock_release(lock);
    return DLOCK_CANCELED;
}
