/* SPDX-License-Identifier: BSD-3-Clause */
/* bench.c - what a lock costs from this machine.
 *
 *   pair     one thread, a lock that nobody else wants
 *   queue    many threads compete for a lock; the server parks the waiters
 *   spin     the same; the waiters try again after a pause
 *
 * The lock has a name of its own, and is free again at the end. Without the module there is no
 * queue. To add a scenario: a row in the table. */
#include "subcommands.h"

#include "complain.h"
#include "connect.h"
#include "output.h"
#include "statistics.h"
#include "url.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BAR_WIDTH = 30, TICK_MS = 100, WAIT_MS = 60000 };

typedef struct scenario {
    const char *name, *title;
    bool is_contended;
    dlock_wait_mode wait_mode;
} scenario;

static const scenario scenarios[] = {
    {"pair", "nobody else wants it", false, DLOCK_WAIT_AUTO},
    {"queue", "many want it, server wait", true, DLOCK_WAIT_SERVER},
    {"spin", "many want it, spin", true, DLOCK_WAIT_SPIN},
};

enum { SCENARIOS = sizeof(scenarios) / sizeof(scenarios[0]) };

typedef struct outcome {
    bool is_skipped;
    dlock_status status;
    char why[300];
    int threads;
    double pairs_per_s, commands_per_pair;
    double smallest_share; /* of a thread; 1 would be fair */
    latency waits;
} outcome;

/* A thread of a scenario. */
typedef struct runner {
    pthread_t thread;
    dlock_lock *lock;
    atomic_bool *is_over;
    dlock_status status;
    latency waits;
} runner;

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void *work(void *arg) {
    runner *runner = arg;
    while (!atomic_load(runner->is_over) && runner->status == DLOCK_OK) {
        int64_t start_us = now_us();
        runner->status = dlock_acquire(runner->lock, WAIT_MS);
        if (runner->status == DLOCK_CANCELED) runner->status = DLOCK_OK; /* the scenario is over */
        if (runner->status != DLOCK_OK || atomic_load(runner->is_over)) break;
        latency_add(&runner->waits, (uint64_t)(now_us() - start_us));
        runner->status = dlock_release(runner->lock);
    }
    if (runner->status == DLOCK_OK) dlock_release(runner->lock); /* if still held */
    return NULL;
}

/* -- progress */

static void show_progress(int number, double part, const char *title) {
    char bar[BAR_WIDTH + 1];
    int full = (int)(part * BAR_WIDTH);
    if (!isatty(STDERR_FILENO)) return;
    memset(bar, ' ', BAR_WIDTH);
    memset(bar, '#', (size_t)(full < BAR_WIDTH ? full : BAR_WIDTH));
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r%d/%d [%s] %3d%%  %-28s", number + 1, SCENARIOS, bar, (int)(part * 100),
            title);
}

static void clear_progress(void) {
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r%78s\r", "");
}

static void let_time_pass(int number, int64_t duration_ms) {
    int64_t start_us = now_us(), length_us = duration_ms * 1000;
    for (int64_t gone_us; (gone_us = now_us() - start_us) < length_us;) {
        show_progress(number, (double)gone_us / (double)length_us, scenarios[number].title);
        int64_t pause_us =
            length_us - gone_us < TICK_MS * 1000 ? length_us - gone_us : TICK_MS * 1000;
        nanosleep(&(struct timespec){.tv_nsec = pause_us * 1000}, NULL);
    }
}

/* -- a scenario */

static void add_up(outcome *outcome, const runner runners[], int count, double seconds,
                   uint64_t commands) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < count; i++) {
        latency_merge(&outcome->waits, &runners[i].waits);
        if (runners[i].waits.total < least) least = runners[i].waits.total;
        if (runners[i].status == DLOCK_OK || outcome->status != DLOCK_OK) continue;
        outcome->status = runners[i].status;
        snprintf(outcome->why, sizeof(outcome->why), "%s", dlock_last_error(runners[i].lock));
    }
    if (outcome->waits.total == 0) return;
    double total = (double)outcome->waits.total;
    outcome->pairs_per_s = total / seconds;
    outcome->commands_per_pair = (double)commands / total;
    outcome->smallest_share = (double)least * count / total;
}

/* False: no lock or no thread. */
static bool start(runner *made, dlock_client *client, const char *name, atomic_bool *is_over) {
    made->is_over = is_over;
    if (dlock_lock_new(&made->lock, client, name, NULL) != DLOCK_OK) return false;
    if (pthread_create(&made->thread, NULL, work, made) == 0) return true;
    dlock_lock_free(made->lock);
    return false;
}

static void play_with(outcome *outcome, int number, const request *request, dlock_client *client,
                      runner runners[]) {
    char name[64];
    atomic_bool is_over = false;
    int started = 0;
    snprintf(name, sizeof(name), "dlock:bench:%d:%lld", (int)getpid(), (long long)now_us());
    dlock_client_stats stats = {.struct_size = sizeof(stats)};
    int64_t start_us = now_us();
    while (started < outcome->threads && start(&runners[started], client, name, &is_over))
        started++;
    if (started == outcome->threads)
        let_time_pass(number, request->duration_ms);
    else
        outcome->status = DLOCK_NO_MEMORY;
    atomic_store(&is_over, true);
    dlock_client_cancel(client);
    for (int i = 0; i < started; i++)
        pthread_join(runners[i].thread, NULL);
    dlock_client_get_stats(client, &stats);
    add_up(outcome, runners, started, (double)(now_us() - start_us) / 1e6, stats.commands);
    for (int i = 0; i < started; i++)
        dlock_lock_free(runners[i].lock);
}

static void play(outcome *outcome, int number, const request *request) {
    const scenario *scenario = &scenarios[number];
    dlock_client *client = NULL;
    dlock_client_options options = connect_options(request);
    outcome->threads = scenario->is_contended ? (int)request->threads : 1;
    options.wait_mode = scenario->wait_mode;
    runner *runners = calloc((size_t)outcome->threads, sizeof(runners[0]));
    outcome->status = runners == NULL ? DLOCK_NO_MEMORY : dlock_client_new(&client, &options);
    if (outcome->status == DLOCK_OK)
        play_with(outcome, number, request, client, runners);
    else
        snprintf(outcome->why, sizeof(outcome->why), "%s", dlock_error());
    dlock_client_free(client);
    free(runners);
}

/* -- the report */

static void show_table(const outcome outcomes[]) {
    printf("%-28s %7s %9s %8s %8s %8s\n", "", "threads", "pairs/s", "p50 ms", "p99 ms", "max ms");
    for (int i = 0; i < SCENARIOS; i++) {
        const outcome *outcome = &outcomes[i];
        if (outcome->is_skipped) continue;
        printf("%-28s %7d %9.0f %8.3f %8.3f %8.1f\n", scenarios[i].title, outcome->threads,
               outcome->pairs_per_s, latency_quantile_ms(&outcome->waits, 0.5),
               latency_quantile_ms(&outcome->waits, 0.99),
               (double)outcome->waits.longest_us / 1000);
    }
    printf("\n%-28s %17s %17s\n", "", "commands per pair", "smallest share");
    for (int i = 0; i < SCENARIOS; i++) {
        if (outcomes[i].is_skipped) continue;
        printf("%-28s %17.2f %16.0f%%\n", scenarios[i].title, outcomes[i].commands_per_pair,
               100 * outcomes[i].smallest_share);
    }
}

static void show_json(const outcome outcomes[]) {
    json_array_begin(NULL);
    for (int i = 0; i < SCENARIOS; i++) {
        const outcome *outcome = &outcomes[i];
        if (outcome->is_skipped) continue;
        json_object_begin(NULL);
        json_text("scenario", scenarios[i].name);
        json_number("threads", outcome->threads);
        json_number("pairs", (int64_t)outcome->waits.total);
        json_decimal("pairs_per_s", outcome->pairs_per_s);
        json_decimal("p50_ms", latency_quantile_ms(&outcome->waits, 0.5));
        json_decimal("p99_ms", latency_quantile_ms(&outcome->waits, 0.99));
        json_decimal("max_ms", (double)outcome->waits.longest_us / 1000);
        json_decimal("commands_per_pair", outcome->commands_per_pair);
        json_decimal("smallest_share", outcome->smallest_share);
        json_object_end();
    }
    json_array_end();
}

static bool is_seen(void *arg, const dlock_inspection *lock) {
    (void)arg;
    (void)lock;
    return false;
}

/* Before anything is measured: does the service accept us? */
static int check(const request *request) {
    int code;
    char why[300];
    dlock_client *client = connect_client(request, &code);
    if (client == NULL) return code;
    int64_t patience_ms = request->connect_timeout_ms + request->io_timeout_ms;
    dlock_status status =
        dlock_inspect(client, "dlock:bench", patience_ms, is_seen, NULL, why, sizeof(why));
    dlock_client_free(client);
    if (status == DLOCK_OK || status == DLOCK_NOT_HELD) return EXIT_CODE_OK;
    return (int)complain_status(request, "bench", status, why);
}

int bench(request *request) {
    static outcome outcomes[SCENARIOS];
    int code = check(request);
    if (code != EXIT_CODE_OK) return code;
    for (int i = 0; i < SCENARIOS; i++) {
        outcomes[i].is_skipped =
            scenarios[i].wait_mode == DLOCK_WAIT_SERVER && url_has(request, "module", "none");
        if (outcomes[i].is_skipped) continue;
        play(&outcomes[i], i, request);
        clear_progress();
        if (outcomes[i].status == DLOCK_OK) continue;
        return (int)complain_status(request, "bench", outcomes[i].status, outcomes[i].why);
    }
    if (request->is_json)
        show_json(outcomes);
    else
        show_table(outcomes);
    return EXIT_CODE_OK;
}
