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

#include "program.h"

#include <hiredis/hiredis.h>

/* So long that a slow machine fails no try: all of them are counted. */
enum { WAIT_MS = 60000, LEASE_MS = 5000, LEFT_MS = 3000 };

static dlock_client *client;
static int counter_port, tries, min_replicas;
static const char *done_key;
static atomic_int successes;

static void done(redisReply *reply) {
    CHECK(reply != NULL && reply->type != REDIS_REPLY_ERROR);
    freeReplyObject(reply);
}

static long long read_counter(redisContext *store) {
    redisReply *reply = redisCommand(store, "GET counter");
    CHECK(reply != NULL);
    long long value = reply->type == REDIS_REPLY_STRING ? atoll(reply->str) : 0;
    freeReplyObject(reply);
    return value;
}

static void write_counter(redisContext *store, long long value) {
    done(redisCommand(store, "MULTI"));
    done(redisCommand(store, "SET counter %lld", value));
    done(redisCommand(store, "INCR %s", done_key));
    done(redisCommand(store, "EXEC"));
}

static void *work(void *data) {
    (void)data;
    redisContext *store = redisConnect("127.0.0.1", counter_port);
    CHECK(store != NULL && !store->err);
    dlock_lock *lock;
    dlock_lock_options options = terms_of(LEASE_MS, DLOCK_EXCLUSIVE);
    options.min_replicas = (uint32_t)min_replicas;
    CHECK(dlock_lock_new(&lock, client, "lock_key", &options) == DLOCK_OK);
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
    counter_port = atoi(argv[2]);
    int thread_count = atoi(argv[3]);
    tries = atoi(argv[4]);
    done_key = argv[5];
    min_replicas = argc == 7 ? atoi(argv[6]) : 0;
    dlock_client_options options = options_for((const char *const *)&argv[1], 1);
    options.io_timeout_ms = options.connect_timeout_ms = 0; /* the defaults */
    CHECK(dlock_client_new(&client, &options) == DLOCK_OK);
    run_threads(thread_count, work);
    dlock_client_free(client);
    printf("%d of %d\n", atomic_load(&successes), thread_count * tries);
    return 0;
}
