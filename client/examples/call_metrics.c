/* SPDX-License-Identifier: BSD-3-Clause */
/* call_metrics.c - a handler that counts calls: granted, answered with no, and failed.
 *
 *   cc -o call_metrics call_metrics.c $(pkg-config --cflags --libs dlock)
 *   ./call_metrics redis://127.0.0.1:6379 redis://127.0.0.1:1
 *
 * takes the locks "free" and "held" of the first service once each, and "free" of the second one,
 * and shows the counters. leave() is called for every call that passed enter(), whatever became of
 * it: a status from 100 on is a failure (dlock_is_failure()), one below an answer of the service.
 * What enter() has begun for an acquire that did not get the lock, leave() undoes. */
#include <dlock_spi.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

enum { OK, NO, FAILED, RESULTS, OPERATIONS = DLOCK_EXTENDING + 1 };

/* Handlers are called by many threads at once. */
typedef struct metrics {
    atomic_uint_least64_t calls[OPERATIONS][RESULTS];
    atomic_uint_least64_t acquire_us;
    atomic_uint_least64_t begun, undone; /* an acquire begins something, a failed one undoes it */
} metrics;

static dlock_step enter(void *arg, dlock_call *call) {
    metrics *metrics = arg;
    if (call->operation == DLOCK_ACQUIRING) atomic_fetch_add(&metrics->begun, 1);
    return DLOCK_PASS;
}

static void leave(void *arg, dlock_call *call) {
    metrics *metrics = arg;
    bool is_ok = call->status == DLOCK_OK, is_acquire = call->operation == DLOCK_ACQUIRING;
    int result = is_ok ? OK : dlock_is_failure(call->status) ? FAILED : NO;
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now); /* the clock of the call */
    int64_t now_us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    atomic_fetch_add(&metrics->calls[call->operation][result], 1);
    if (is_acquire) atomic_fetch_add(&metrics->acquire_us, (uint64_t)(now_us - call->started_us));
    if (is_acquire && !is_ok) atomic_fetch_add(&metrics->undone, 1);
}

static void show(metrics *metrics) {
    static const char *const operations[] = {"", "acquire", "release", "extend"};
    static const char *const results[] = {"ok", "no", "failed"};
    for (int i = DLOCK_ACQUIRING; i < OPERATIONS; i++)
        for (int j = 0; j < RESULTS; j++)
            printf("%s_%s %" PRIu64 "\n", operations[i], results[j],
                   (uint64_t)atomic_load(&metrics->calls[i][j]));
    printf("undone %" PRIu64 "\n", (uint64_t)atomic_load(&metrics->undone));
    printf("acquire_ms %.3f\n", (double)atomic_load(&metrics->acquire_us) / 1000);
}

/* Handlers cannot be named by a URL, but all other options can. */
static dlock_client *connect(const char *url, const dlock_handler *handler) {
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = &url;
    options.url_count = 1;
    options.handlers = &handler;
    options.handler_count = 1;
    dlock_client *client;
    if (dlock_client_new(&client, &options) != DLOCK_OK)
        fprintf(stderr, "call_metrics: no client: %s\n", dlock_error());
    return client;
}

static void use(dlock_client *client, const char *name) {
    DLOCK_SCOPED(held, client, name, DLOCK_NO_WAIT, NULL);
}

int main(int argc, char **argv) {
    static metrics metrics;
    if (argc != 3) {
        fprintf(stderr, "usage: call_metrics URL URL\n");
        return 2;
    }
    dlock_handler handler = {.struct_size = sizeof(handler),
                             .name = "metrics",
                             .order = 200, /* below 1000: sees every call */
                             .arg = &metrics,
                             .enter = enter,
                             .leave = leave};
    dlock_client *first = connect(argv[1], &handler), *second = connect(argv[2], &handler);
    if (first == NULL || second == NULL) return 2;
    use(first, "free");
    use(first, "held");
    use(second, "free");
    show(&metrics);
    dlock_client_free(first);
    dlock_client_free(second);
    return 0;
}
