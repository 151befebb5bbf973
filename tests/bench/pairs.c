/* SPDX-License-Identifier: BSD-3-Clause */
/* pairs.c - threads that each take a lock of their own and give it back, again and again.
 *
 *   pairs PORT THREADS RUN_MS dlock|handlers|hiredis
 *
 * dlock: through libdlock, one client for all. handlers: the same, with ten handlers in its chain
 * that do nothing. hiredis: the same two commands in a bare loop of
 * redisCommandArgv(), with a connection for each. Prints the number of pairs. */
#include "dlock_spi.h"

#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS_MAX = 64, HANDLERS = 10 };

typedef struct worker {
    pthread_t thread;
    char name[32];
    long long pairs;
} worker;

static worker workers[THREADS_MAX];
static int port;
static dlock_client *client;
static atomic_bool is_over;
static pthread_barrier_t all_ready;

static void fail(const char *what) {
    fprintf(stderr, "pairs: %s\n", what);
    exit(1);
}

static void *use_dlock(void *data) {
    worker *w = data;
    dlock_lock *lock;
    if (dlock_lock_new(&lock, client, w->name, NULL) != DLOCK_OK) fail("dlock_lock_new");
    pthread_barrier_wait(&all_ready);
    for (; !atomic_load(&is_over); w->pairs++) {
        if (dlock_acquire(lock, 1000) != DLOCK_OK) fail(dlock_last_error(lock));
        if (dlock_release(lock) != DLOCK_OK) fail(dlock_last_error(lock));
    }
    dlock_lock_free(lock);
    return NULL;
}

static void ask(redisContext *connection, int count, const char **words) {
    redisReply *reply = redisCommandArgv(connection, count, words, NULL);
    if (reply == NULL || reply->type != REDIS_REPLY_INTEGER || reply->integer == 0) fail("hiredis");
    freeReplyObject(reply);
}

static void *use_hiredis(void *data) {
    worker *w = data;
    char token[64];
    redisContext *connection = redisConnect("127.0.0.1", port);
    if (connection == NULL || connection->err) fail("redisConnect");
    pthread_barrier_wait(&all_ready);
    for (; !atomic_load(&is_over); w->pairs++) {
        snprintf(token, sizeof(token), "host:1:%032lld", w->pairs);
        ask(connection, 7,
            (const char *[]){"DLOCK.ACQUIRE", w->name, token, "PX", "10000", "WAIT", "1000"});
        ask(connection, 3, (const char *[]){"DLOCK.RELEASE", w->name, token});
    }
    redisFree(connection);
    return NULL;
}

static dlock_step pass(void *arg, dlock_call *call) {
    (void)arg;
    (void)call;
    return DLOCK_PASS;
}

static void look(void *arg, dlock_call *call) {
    (void)arg;
    (void)call;
}

static void make_client(bool has_handlers) {
    static const dlock_handler idle = {
        .struct_size = sizeof(idle), .name = "idle", .enter = pass, .leave = look};
    const dlock_handler *handlers[HANDLERS];
    for (int i = 0; i < HANDLERS; i++)
        handlers[i] = &idle;
    char url[64];
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", port);
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = (const char *const[]){url};
    options.url_count = 1;
    options.io_timeout_ms = 5000;
    options.handlers = handlers;
    options.handler_count = has_handlers ? HANDLERS : 0;
    if (dlock_client_new(&client, &options) != DLOCK_OK) fail("dlock_client_new");
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    port = atoi(argv[1]);
    int threads = atoi(argv[2]);
    long run_ms = atol(argv[3]);
    bool has_handlers = strcmp(argv[4], "handlers") == 0;
    bool is_dlock = has_handlers || strcmp(argv[4], "dlock") == 0;
    if (threads < 1 || threads > THREADS_MAX) return 2;
    make_client(has_handlers);
    pthread_barrier_init(&all_ready, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) {
        snprintf(workers[i].name, sizeof(workers[i].name), "pair %d", i);
        pthread_create(&workers[i].thread, NULL, is_dlock ? use_dlock : use_hiredis, &workers[i]);
    }
    pthread_barrier_wait(&all_ready);
    struct timespec run = {.tv_sec = run_ms / 1000, .tv_nsec = run_ms % 1000 * 1000000};
    nanosleep(&run, NULL);
    atomic_store(&is_over, true);
    long long pairs = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        pairs += workers[i].pairs;
    }
    dlock_client_free(client);
    printf("%lld\n", pairs);
    return 0;
}
