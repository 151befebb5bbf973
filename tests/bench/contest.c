/* SPDX-License-Identifier: BSD-3-Clause */
/* contest.c - threads of one process that want one lock, through libdlock.
 *
 *   contest URL THREADS TRIES RUN_MS spin|server PAUSE_MS RANDOM_MS HOTSPOT HAND_ON COUNTER_PORT \
 *           ROUND_TRIP_MS
 *
 * Each thread makes so many TRIES, or goes on for RUN_MS if TRIES is 0, with a wait of 3 s.
 * HOTSPOT 1 registers the name. With the lock it does GET, +1, SET on a counter at COUNTER_PORT,
 * or nothing if that is 0; each of these round trips takes ROUND_TRIP_MS, as on a network.
 * Prints how many tries succeeded, and how many there were. */
#include "dlock.h"

#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS_MAX = 64, WAIT_MS = 3000, ARGUMENTS = 12 };
#define NAME "lock_key"

static dlock_client *client;
static int tries, counter_port, round_trip_ms;
static atomic_int successes, attempts;
static atomic_bool is_over;
static pthread_barrier_t all_ready;

static void fail(const char *what) {
    fprintf(stderr, "contest: %s\n", what);
    exit(1);
}

static void pause_for_network(void) {
    struct timespec pause = {.tv_sec = 0, .tv_nsec = round_trip_ms * 1000000L};
    nanosleep(&pause, NULL);
}

static void work_section(redisContext *store) {
    pause_for_network();
    redisReply *got = redisCommand(store, "GET counter");
    if (got == NULL) fail("GET");
    long long value = got->type == REDIS_REPLY_STRING ? atoll(got->str) : 0;
    freeReplyObject(got);
    pause_for_network();
    redisReply *set = redisCommand(store, "SET counter %lld", value + 1);
    if (set == NULL) fail("SET");
    freeReplyObject(set);
}

static void *contend(void *data) {
    (void)data;
    dlock_lock *lock;
    redisContext *store = counter_port == 0 ? NULL : redisConnect("127.0.0.1", counter_port);
    if (counter_port != 0 && (store == NULL || store->err)) fail("the counter's server");
    if (dlock_lock_new(&lock, client, NAME, NULL) != DLOCK_OK) fail("dlock_lock_new");
    pthread_barrier_wait(&all_ready);
    for (int i = 0; tries > 0 ? i < tries : !atomic_load(&is_over); i++) {
        atomic_fetch_add_explicit(&attempts, 1, memory_order_relaxed);
        dlock_status status = dlock_acquire(lock, WAIT_MS);
        if (status != DLOCK_OK && status != DLOCK_TIMEOUT) fail(dlock_last_error(lock));
        if (status != DLOCK_OK) continue;
        if (store != NULL) work_section(store);
        if (dlock_release(lock) != DLOCK_OK) fail(dlock_last_error(lock));
        atomic_fetch_add_explicit(&successes, 1, memory_order_relaxed);
    }
    dlock_lock_free(lock);
    if (store != NULL) redisFree(store);
    return NULL;
}

static void make_client(char **argv) {
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = (const char *const[]){argv[1]};
    options.url_count = 1;
    options.io_timeout_ms = 5000;
    options.wait_mode = strcmp(argv[5], "spin") == 0 ? DLOCK_WAIT_SPIN : DLOCK_WAIT_SERVER;
    options.spin_min_ms = (uint32_t)atoi(argv[6]);
    options.spin_random_ms = (uint32_t)atoi(argv[7]);
    options.hotspot_hand_on = (uint32_t)atoi(argv[9]);
    if (dlock_client_new(&client, &options) != DLOCK_OK) fail("dlock_client_new");
    if (atoi(argv[8]) != 0 && dlock_hotspot_add(client, NAME) != DLOCK_OK) fail("hotspot_add");
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS_MAX];
    if (argc != ARGUMENTS) return 2;
    int count = atoi(argv[2]);
    long run_ms = atol(argv[4]);
    tries = atoi(argv[3]);
    counter_port = atoi(argv[10]);
    round_trip_ms = atoi(argv[11]);
    if (count < 1 || count > THREADS_MAX) return 2;
    make_client(argv);
    pthread_barrier_init(&all_ready, NULL, (unsigned)count + 1);
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, contend, NULL);
    pthread_barrier_wait(&all_ready);
    struct timespec run = {.tv_sec = run_ms / 1000, .tv_nsec = run_ms % 1000 * 1000000};
    if (tries == 0) nanosleep(&run, NULL);
    atomic_store(&is_over, true);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    dlock_client_free(client);
    printf("%d %d\n", atomic_load(&successes), atomic_load(&attempts));
    return 0;
}
