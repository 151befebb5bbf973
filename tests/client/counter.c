/* SPDX-License-Identifier: BSD-3-Clause */
/* counter.c - get, +1, set on a counter that lives elsewhere, under a lock, by several threads.
 *
 *   counter LOCK_URL COUNTER_PORT THREADS TRIES DONE_KEY [MIN_REPLICAS]
 *
 * The new value and this process's own count of successes (DONE_KEY) are written in one
 * transaction, so that both are true even if the process is killed at any moment. Without the lock,
 * updates would be lost, and the counter would end below the sum of all successes. Prints successes
 * and tries. */
#include "either_form.h"

#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* So long that a slow machine fails no try: all of them are counted. */
enum { THREADS_MAX = 64, WAIT_MS = 60000, LEASE_MS = 5000, LEFT_MS = 3000 };

static dlock_client *client;
static int counter_port, tries, min_replicas;
static const char *done_key;
static atomic_int successes;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "counter: %s: %s\n", what, why);
    exit(1);
}

static void check(redisReply *reply, const char *what) {
    if (reply == NULL || reply->type == REDIS_REPLY_ERROR) fail("the counter's server", what);
    freeReplyObject(reply);
}

static long long read_counter(redisContext *store) {
    redisReply *reply = redisCommand(store, "GET counter");
    if (reply == NULL) fail("the counter's server", "GET");
    long long value = reply->type == REDIS_REPLY_STRING ? atoll(reply->str) : 0;
    freeReplyObject(reply);
    return value;
}

static void write_counter(redisContext *store, long long value) {
    check(redisCommand(store, "MULTI"), "MULTI");
    check(redisCommand(store, "SET counter %lld", value), "SET");
    check(redisCommand(store, "INCR %s", done_key), "INCR");
    check(redisCommand(store, "EXEC"), "EXEC");
}

static void *work(void *data) {
    (void)data;
    redisContext *store = redisConnect("127.0.0.1", counter_port);
    if (store == NULL || store->err) fail("the counter's server", "connect");
    dlock_lock *lock;
    dlock_lock_options options;
    dlock_lock_options_init(&options);
    options.lease_ms = LEASE_MS;
    options.min_replicas = (uint32_t)min_replicas;
    if (dlock_lock_new(&lock, client, "lock_key", &options) != DLOCK_OK) fail("lock", "new");
    for (int i = 0; i < tries; i++) {
        if (dlock_acquire(lock, WAIT_MS) != DLOCK_OK) continue;
        long long value = read_counter(store);
        /* A machine that was away for a while must not write: there is no fence at this store. */
        if (dlock_remaining_ms(lock) > LEFT_MS) {
            write_counter(store, value + 1);
            atomic_fetch_add(&successes, 1);
        }
        dlock_release(lock);
    }
    dlock_lock_free(lock);
    redisFree(store);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 6 && argc != 7) return 2;
    pthread_t threads[THREADS_MAX];
    counter_port = atoi(argv[2]);
    int thread_count = atoi(argv[3]);
    tries = atoi(argv[4]);
    done_key = argv[5];
    min_replicas = argc == 7 ? atoi(argv[6]) : 0;
    if (thread_count < 1 || thread_count > THREADS_MAX) return 2;
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = (const char *const[]){argv[1]};
    options.url_count = 1;
    if (dlock_client_new(&client, &options) != DLOCK_OK) fail("client", "new");
    for (int i = 0; i < thread_count; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < thread_count; i++)
        pthread_join(threads[i], NULL);
    dlock_client_free(client);
    printf("%d of %d\n", atomic_load(&successes), thread_count * tries);
    return 0;
}
