/* SPDX-License-Identifier: BSD-3-Clause */
/* claim.c - acquire, release, extend and wait, for scripts: a token holds the lock, not a process.
 *
 *   acquire   the lock stays held when the process ends, and the token is printed
 *   force     release --force, for operators: who holds the lock now is shown, a person at a
 *             terminal is asked (--yes stands for the answer), and the tokens that were shown are
 *             released. A holder that comes later keeps the lock. Not DEL: that could hit a holder
 *             whom the operator has never seen
 *   release   and extend: by the token
 *   wait      looks at the lock now and then, and takes no place in its queue */
#include "subcommands.h"

#include "complain.h"
#include "connect.h"
#include "output.h"
#include "sightings.h"
#include "text.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_FIRST_MS = 10, LOOK_MAX_MS = 200, WHY_SIZE = 400, TEXT_SIZE = 600 };

typedef struct claim {
    const request *request;
    dlock_client *client;
} claim;

/* -- acquire */

/* The result is 0, or an errno: the token cannot be written. */
static int show_grant(const request *request, const dlock_lock *lock) {
    if (request->is_json) {
        json_object_begin(NULL);
        json_text("name", request->words[0]);
        json_text("token", dlock_token(lock));
        json_number("fence", (int64_t)dlock_fence(lock));
        json_number("lease_ms", request->lease_ms);
        json_object_end();
    } else {
        puts(dlock_token(lock));
    }
    return output_flush();
}

/* Nobody could release a lock whose token nobody has. Freeing a handle would release its lock, so
 * the process ends without that. */
static _Noreturn void hand_over(const request *request, dlock_lock *lock) {
    signal(SIGPIPE, SIG_IGN); /* a reader that has ended is an error of the write */
    int error = show_grant(request, lock);
    if (error == 0) _exit(EXIT_CODE_OK);
    bool is_released = dlock_release(lock) == DLOCK_OK;
    complain("%s: the token cannot be written (%s): the lock %s", request->words[0],
             strerror(error),
             is_released ? "is released" : "could not be released and ends with its lease");
    _exit(EXIT_CODE_INTERNAL);
}

static void show_wait(void *arg) {
    const claim *claim = arg;
    char holder[WHY_SIZE];
    holder_describe(claim->client, claim->request, claim->request->words[0], holder,
                    sizeof(holder));
    connect_show_wait(claim->request, claim->request->words[0], holder);
}

static int take(claim *claim, dlock_lock *lock) {
    const request *request = claim->request;
    char holder[WHY_SIZE];
    cancel_catch((const int[]){SIGINT, SIGTERM, SIGHUP, 0});
    dlock_status status = cancel_acquire(request, claim->client, lock, request->wait_ms,
                                         request->is_verbose ? show_wait : NULL, claim);
    if (status == DLOCK_OK) hand_over(request, lock);
    if (cancel_signal() != 0) return EXIT_CODE_SIGNAL + cancel_signal();
    bool is_busy = status == DLOCK_BUSY || status == DLOCK_TIMEOUT;
    if (is_busy) holder_describe(claim->client, request, request->words[0], holder, sizeof(holder));
    return connect_explain(request, request->words[0], status,
                           is_busy ? holder : dlock_last_error(lock));
}

/* This process ends while the lock is held, so the lock has a lease, and is not kept by the session
 * of the process, whatever the URL says of renew. */
int claim_acquire(request *request) {
    int code;
    dlock_lock *lock;
    dlock_lock_options how = connect_lock_options(request);
    how.renew = DLOCK_NO;
    dlock_client *client = connect_client(request, &code);
    if (client == NULL) return code;
    dlock_status status = dlock_lock_new(&lock, client, request->words[0], &how);
    if (status == DLOCK_OK)
        code = take(&(claim){request, client}, lock);
    else
        code =
            (int)complain_status(request, "not a lock that can be had here", status, dlock_error());
    dlock_lock_free(lock);
    dlock_client_free(client);
    return code;
}

/* -- release by force */

static void show_holder(const char *name, const sighting *seen) {
    char age[DURATION_SIZE], safe_name[TEXT_SIZE], safe_token[TEXT_SIZE];
    duration_show(seen->age_ms, age);
    fprintf(stderr, "%s: held by %s for %s, %lld waiting\n",
            escape_text(safe_name, sizeof(safe_name), name, strlen(name)),
            escape_text(safe_token, sizeof(safe_token), seen->lock.token, seen->lock.token_length),
            age, (long long)seen->lock.waiters);
}

/* False: not confirmed. */
static bool is_confirmed(const request *request, const sightings *holders) {
    char answer[16] = "";
    for (size_t i = 0; i < holders->count; i++)
        show_holder(request->words[0], &holders->all[i]);
    fprintf(stderr, "A holder without a session notices only when it renews. Release it? [y/N] ");
    return fgets(answer, sizeof(answer), stdin) != NULL && (answer[0] == 'y' || answer[0] == 'Y');
}

/* How many of the tokens held the lock and do not any more. failure: the last one, if any. */
static size_t release_all(const request *request, dlock_client *client, const sightings *holders,
                          dlock_status *failure) {
    size_t released = 0;
    for (size_t i = 0; i < holders->count; i++) {
        char why[WHY_SIZE] = "";
        const dlock_inspection *lock = &holders->all[i].lock;
        bool has_nul = strlen(lock->token) != lock->token_length;
        dlock_status status = DLOCK_INVALID;
        if (has_nul)
            snprintf(why, sizeof(why), "the token has a zero byte in it: use DEL");
        else
            status = dlock_release_token(client, request->words[0], lock->token, why, sizeof(why));
        if (status == DLOCK_OK) released++;
        if (status == DLOCK_NOT_HELD)
            complain("%s: %s does not hold it any more", request->words[0], lock->token);
        else if (status != DLOCK_OK)
            complain_status(request, request->words[0], *failure = status, why);
    }
    return released;
}

static void show_released(const request *request, bool is_released) {
    json_object_begin(NULL);
    json_text("name", request->words[0]);
    json_fact("released", is_released);
    json_object_end();
}

static int show_free(const request *request) {
    if (request->is_json)
        show_released(request, false);
    else
        complain("%s: the lock is free", request->words[0]);
    return EXIT_CODE_BUSY;
}

static int release_seen(const request *request, dlock_client *client, const sightings *holders) {
    if (!request->is_sure && !isatty(STDIN_FILENO)) {
        complain("--force asks first, and there is no terminal: use --yes");
        return EXIT_CODE_USAGE;
    }
    if (!request->is_sure && !is_confirmed(request, holders)) {
        complain("%s: nothing has changed", request->words[0]);
        return EXIT_CODE_BUSY;
    }
    dlock_status failure = DLOCK_OK;
    bool is_released = release_all(request, client, holders, &failure) > 0;
    if (request->is_json) show_released(request, is_released && failure == DLOCK_OK);
    if (failure != DLOCK_OK) return (int)exit_code_of(failure);
    return is_released ? EXIT_CODE_OK : EXIT_CODE_BUSY;
}

static int force_release(request *request) {
    int code;
    char why[WHY_SIZE];
    sightings holders = {0};
    dlock_client *client = connect_client(request, &code);
    if (client == NULL) return code;
    dlock_status status = dlock_inspect(client, request->words[0],
                                        request->connect_timeout_ms + request->io_timeout_ms,
                                        sightings_add, &holders, why, sizeof(why));
    sightings_sort(&holders, "name");
    code = (int)exit_code_of(status);
    if (status == DLOCK_OK)
        code = release_seen(request, client, &holders);
    else if (status == DLOCK_NOT_HELD)
        code = show_free(request);
    else
        complain_status(request, request->words[0], status, why);
    sightings_clear(&holders);
    dlock_client_free(client);
    return code;
}

/* -- release and extend */

static int show_change(const request *request, dlock_status status, const char *fact,
                       const char *why) {
    bool has_reply = status == DLOCK_OK || status == DLOCK_NOT_HELD;
    if (request->is_json && has_reply) {
        json_object_begin(NULL);
        json_text("name", request->words[0]);
        json_fact(fact, status == DLOCK_OK);
        json_object_end();
        return (int)exit_code_of(status);
    }
    if (status == DLOCK_NOT_HELD) complain("%s: the token does not hold it", request->words[0]);
    if (has_reply) return (int)exit_code_of(status);
    return (int)complain_status(request, request->words[0], status, why);
}

int claim_release(request *request) {
    int code;
    char why[WHY_SIZE];
    if (request->word_count != (request->is_forced ? 1 : 2)) {
        complain(request->is_forced ? "release --force needs a name and no token"
                                    : "release needs a name and a token; see also --force");
        return EXIT_CODE_USAGE;
    }
    if (request->is_forced) return force_release(request);
    dlock_client *client = connect_client(request, &code);
    if (client == NULL) return code;
    dlock_status status =
        dlock_release_token(client, request->words[0], request->words[1], why, sizeof(why));
    dlock_client_free(client);
    return show_change(request, status, "released", why);
}

/* The holder keeps the lock by its session, as dlock run does. */
static bool has_no_lease(dlock_status status, const char *why) {
    return status == DLOCK_PROTOCOL && strstr(why, "no lease of its own") != NULL;
}

int claim_extend(request *request) {
    int code;
    char why[WHY_SIZE];
    dlock_client *client = connect_client(request, &code);
    if (client == NULL) return code;
    dlock_status status = dlock_extend_token(client, request->words[0], request->words[1],
                                             (uint32_t)request->lease_ms, why, sizeof(why));
    dlock_client_free(client);
    if (!has_no_lease(status, why)) return show_change(request, status, "extended", why);
    complain("%s: held as long as its holder's session, which renews it: nothing to extend",
             request->words[0]);
    return EXIT_CODE_USAGE;
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

/* A server that starts, is busy or has lost its master for a moment refuses with these words. */
static bool is_passing(dlock_status status, const char *why) {
    static const char *const words[] = {"LOADING ", "BUSY ", "MASTERDOWN ", "CLUSTERDOWN "};
    if (status == DLOCK_UNREACHABLE) return true;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]) && status == DLOCK_REFUSED; i++)
        if (strstr(why, words[i]) != NULL) return true;
    return false;
}

/* Looks at the lock instead of queueing for it, so as to be in nobody's way. As in
 * cancel_acquire(), a server that cannot be reached ends the wait only if no look has worked yet
 * and the request is not patient. */
static dlock_status wait_until_free(const request *request, dlock_client *client, char *why) {
    int64_t patience_ms = request->connect_timeout_ms + request->io_timeout_ms;
    bool is_patient = request->is_patient;
    int64_t until_ms = request->wait_ms >= 0 ? now_ms() + request->wait_ms : INT64_MAX;
    int64_t pause_ms = LOOK_FIRST_MS;
    for (;;) {
        dlock_status status =
            dlock_inspect(client, request->words[0], patience_ms, is_seen, NULL, why, WHY_SIZE);
        int64_t left_ms = until_ms - now_ms();
        bool is_held = status == DLOCK_OK;
        is_patient = is_patient || is_held;
        if (!is_held && !(is_patient && is_passing(status, why))) return status;
        if (left_ms <= 0) return is_held ? DLOCK_TIMEOUT : status;
        if (pause_ms > left_ms) pause_ms = left_ms;
        nanosleep(&(struct timespec){.tv_nsec = pause_ms * 1000000}, NULL);
        pause_ms = pause_ms * 2 < LOOK_MAX_MS ? pause_ms * 2 : LOOK_MAX_MS;
    }
}

int claim_wait(request *request) {
    int code;
    char why[WHY_SIZE], holder[WHY_SIZE] = "";
    dlock_client *client = connect_client(request, &code);
    if (client == NULL) return code;
    if (request->is_verbose && request->wait_ms != DLOCK_NO_WAIT)
        show_wait(&(claim){request, client});
    dlock_status status = wait_until_free(request, client, why);
    if (status == DLOCK_TIMEOUT)
        holder_describe(client, request, request->words[0], holder, sizeof(holder));
    dlock_client_free(client);
    bool is_free = status == DLOCK_NOT_HELD;
    if (!is_free && status != DLOCK_TIMEOUT)
        return (int)complain_query(request, request->words[0], status, why, ACL_INFO);
    if (request->is_json) {
        json_object_begin(NULL);
        json_text("name", request->words[0]);
        json_fact("free", is_free);
        json_object_end();
    }
    if (is_free) return EXIT_CODE_OK;
    bool is_tried_once = request->wait_ms == DLOCK_NO_WAIT;
    return connect_explain(request, request->words[0], is_tried_once ? DLOCK_BUSY : DLOCK_TIMEOUT,
                           holder);
}
