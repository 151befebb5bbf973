/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.c - a line whenever a lock changes hands.
 *
 *   2026-01-31T12:00:00.000Z held host:4711:0b4e... fence 1769860800000000
 *   2026-01-31T12:00:05.250Z free
 *
 * The library calls show() in a thread of its own; the main thread waits for the last line, for a
 * signal, and for the end of whoever reads the lines. */
#include "subcommands.h"

#include "complain.h"
#include "connect.h"
#include "output.h"
#include "text.h"
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { WHY_SIZE = 300, WHEN_SIZE = 40, LOOK_MS = 200 };

typedef struct watching {
    const request *request;
    int64_t lines;
    atomic_bool is_over;
} watching;

static void write_time(char when[WHEN_SIZE]) {
    struct timespec now;
    struct tm parts;
    char seconds[24];
    clock_gettime(CLOCK_REALTIME, &now);
    strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &parts));
    snprintf(when, WHEN_SIZE, "%s.%03dZ", seconds, (int)(now.tv_nsec / 1000000));
}

static void show_json(const char *when, const char *name, const dlock_inspection *holder) {
    json_object_begin(NULL);
    json_text("time", when);
    json_text("name", name);
    json_fact("free", holder == NULL);
    if (holder != NULL) {
        json_bytes("token", holder->token, holder->token_length);
        json_number("fence", (int64_t)holder->fence);
        json_number("since_ms", holder->since_ms);
        json_text("kind", holder->is_string ? "string" : "lock");
        json_text("mode", holder->mode == DLOCK_SHARED ? "shared" : "exclusive");
        json_number("holders", holder->holders);
        json_text("server", holder->server);
    }
    json_object_end();
}

static void show_line(const char *when, const dlock_inspection *holder) {
    char token[COLUMN_MAX * 4 + 1];
    if (holder == NULL) {
        printf("%s free\n", when);
        return;
    }
    printf("%s held %s fence %" PRIu64, when,
           column_show(token, holder->token, holder->token_length, COLUMN_MAX, 0), holder->fence);
    if (holder->mode == DLOCK_SHARED) printf(" shared by %" PRId64, holder->holders);
    putchar('\n');
}

static void show(void *arg, const char *name, const dlock_inspection *holder) {
    watching *watching = arg;
    char when[WHEN_SIZE];
    bool is_enough = watching->request->rounds > 0 && watching->lines >= watching->request->rounds;
    if (is_enough) return;
    watching->lines++;
    write_time(when);
    if (watching->request->is_json)
        show_json(when, name, holder);
    else
        show_line(when, holder);
    /* Before its reader can have the last line, and leave. */
    if (watching->lines == watching->request->rounds) watching->is_over = true;
    if (output_flush() != 0) watching->is_over = true;
}

static bool ignore(void *arg, const dlock_inspection *lock) {
    (void)arg, (void)lock;
    return true;
}

/* A server that cannot be reached at the start is an error; the watch survives later failures. */
static dlock_status look_first(dlock_client *client, const request *request, char why[WHY_SIZE]) {
    int64_t timeout_ms = request->connect_timeout_ms + request->io_timeout_ms;
    dlock_status status =
        dlock_inspect(client, request->words[0], timeout_ms, ignore, NULL, why, WHY_SIZE);
    return status == DLOCK_NOT_HELD ? DLOCK_OK : status;
}

/* As after nohup(1), a signal that was ignored before stays so. */
static void catch_signals(void) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        struct sigaction before;
        sigaction(signals[i], NULL, &before);
        if (before.sa_handler != SIG_IGN) cancel_catch((const int[]){signals[i], 0});
    }
}

/* True: whoever read the lines is gone, which a write would tell only with the next change. */
static bool wait_for_end(const watching *watching) {
    struct pollfd lines = {.fd = STDOUT_FILENO};
    while (!watching->is_over && cancel_signal() == 0)
        if (poll(&lines, 1, LOOK_MS) > 0) return !watching->is_over;
    return false;
}

int watch(request *request) {
    int code;
    char why[WHY_SIZE] = "";
    watching watching = {.request = request};
    dlock_watcher *watcher = NULL;
    dlock_client *client = connect_client(request, &code);
    if (client == NULL) return code;
    dlock_status status = look_first(client, request, why); /* no session yet: signals may kill */
    if (status == DLOCK_OK) {
        catch_signals();
        status = dlock_watch(client, request->words[0], show, &watching, &watcher);
        snprintf(why, sizeof(why), "%s", dlock_error());
    }
    bool is_reader_gone = status == DLOCK_OK && wait_for_end(&watching);
    dlock_watcher_free(watcher);
    dlock_client_free(client);
    if (status != DLOCK_OK) return (int)complain_query(request, "watch", status, why, ACL_INFO);
    if (is_reader_gone) raise(SIGPIPE); /* as the write would */
    return cancel_signal() == 0 ? EXIT_CODE_OK : EXIT_CODE_SIGNAL + cancel_signal();
}
