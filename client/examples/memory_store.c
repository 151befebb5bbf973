/* SPDX-License-Identifier: BSD-3-Clause */
/* memory_store.c - a store of your own: locks that live in this process. No server is needed.
 *
 *   cc -pthread -o memory_store memory_store.c $(pkg-config --cflags --libs dlock)
 *   ./memory_store 8 1000 [spin]
 *
 * 8 threads count to 1000 each, on one counter, under one lock. A store only has to add a name that
 * is not there, and to remove the name for the token that added it; the library does the rest. This
 * store has one holder for a name, so can_share is false, and the library refuses shared locks. A
 * store of yours would send requests to a database, and may block: threads of the library call it.
 *
 * This store learns of every release, so waits is true, and acquire() waits for a busy lock. A
 * store without waits returns DLOCK_BUSY at once, and the library asks again after a pause. With
 * "spin" the library does so here, too. */
#include <dlock_spi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NAMES_MAX = 16, THREADS_MAX = 64, WAIT_MS = 60000, LOOK_EVERY_US = 50000 };

typedef struct record {
    char *name;                   /* NULL: not used yet */
    char token[DLOCK_TOKEN_SIZE]; /* of the holder; "": nobody */
    uint64_t fence;               /* stays when the lock is free: the next one is larger */
    int64_t ends_us;              /* the lease */
} record;

static record records[NAMES_MAX];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released; /* on CLOCK_MONOTONIC */

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now); /* the clock of all times in a dlock_call */
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* A record is never removed, or its fences would begin again. NULL: no room. */
static record *find(const char *name) {
    for (record *each = records; each < records + NAMES_MAX; each++) {
        if (each->name == NULL) each->name = strdup(name);
        if (each->name != NULL && strcmp(each->name, name) == 0) return each;
    }
    return NULL;
}

static dlock_status refuse(dlock_call *call, dlock_status status, const char *cause) {
    dlock_call_explain(call, cause);
    return status;
}

/* Locked. The same token again is DLOCK_OK: a reply was lost, say, and the library asks again. */
static dlock_status change(record *record, dlock_call *call, dlock_operation operation) {
    int64_t asked_us = now_us();
    if (record == NULL) return refuse(call, DLOCK_REFUSED, "the store is full");
    bool is_held = record->token[0] != '\0' && asked_us < record->ends_us;
    bool is_ours = is_held && strcmp(record->token, call->token) == 0;
    int64_t ends_us = asked_us + (int64_t)call->lease_ms * 1000;
    if (operation == DLOCK_ACQUIRING) {
        if (is_held && !is_ours) return refuse(call, DLOCK_BUSY, "another holds the lock");
        if (!is_ours) record->fence++;
        snprintf(record->token, sizeof(record->token), "%s", call->token);
        call->fence = record->fence;
    } else if (!is_ours) {
        return refuse(call, DLOCK_LOST, "another holds the lock, or nobody");
    }
    if (operation == DLOCK_RELEASING) record->token[0] = '\0';
    if (!is_ours || ends_us > record->ends_us) record->ends_us = ends_us; /* never shorter */
    call->asked_us = asked_us; /* from before the store did anything */
    return DLOCK_OK;
}

/* Locked. Until a release, the given time, or the next look at the lease and at the call. */
static void wait_for_release(int64_t until_us) {
    struct timespec until;
    int64_t left_us = until_us - now_us();
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 1000 * (long)(left_us < LOOK_EVERY_US ? left_us : LOOK_EVERY_US);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&released, &mutex, &until); /* others use the store meanwhile */
}

/* A deadline that has passed means one try. */
static dlock_status acquire(void *arg, dlock_call *call, int64_t limit_us) {
    (void)arg, (void)limit_us;  /* memory is never late */
    pthread_mutex_lock(&mutex); /* a store is used by many threads at once */
    record *record = find(call->name);
    dlock_status status = change(record, call, DLOCK_ACQUIRING);
    while (status == DLOCK_BUSY && now_us() < call->deadline_us && !dlock_call_is_canceled(call)) {
        wait_for_release(call->deadline_us);
        status = change(record, call, DLOCK_ACQUIRING);
    }
    pthread_mutex_unlock(&mutex);
    return status;
}

static dlock_status ask(dlock_call *call, dlock_operation operation) {
    pthread_mutex_lock(&mutex);
    dlock_status status = change(find(call->name), call, operation);
    if (operation == DLOCK_RELEASING) pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&mutex);
    return status;
}

static dlock_status extend(void *arg, dlock_call *call, int64_t limit_us) {
    (void)arg, (void)limit_us;
    return ask(call, DLOCK_EXTENDING);
}

static dlock_status release(void *arg, dlock_call *call, int64_t limit_us) {
    (void)arg, (void)limit_us;
    return ask(call, DLOCK_RELEASING);
}

/* -- the program: nothing in it but options.backend knows that there is no server */

static dlock_client *client;
static long rounds, counter;

static void *count(void *unused) {
    dlock_lock *lock;
    if (dlock_lock_new(&lock, client, "counter", NULL) != DLOCK_OK) exit(1);
    for (long i = 0; i < rounds && dlock_acquire(lock, WAIT_MS) == DLOCK_OK; i++) {
        if ((uint64_t)++counter != dlock_fence(lock)) exit(1);
        dlock_release(lock);
    }
    dlock_lock_free(lock);
    return unused;
}

static bool open_store(bool is_spinning) {
    dlock_backend memory = {.struct_size = sizeof(memory),
                            .name = "memory",
                            .acquire = acquire,
                            .extend = extend,
                            .release = release,
                            .waits = true};
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) != 0) return false;
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    if (pthread_cond_init(&released, &monotonic) != 0) return false;
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.backend = &memory; /* instead of a URL */
    options.wait_mode = is_spinning ? DLOCK_WAIT_SPIN : DLOCK_WAIT_AUTO;
    options.spin_min_ms = 1;
    return dlock_client_new(&client, &options) == DLOCK_OK;
}

int main(int argc, char **argv) {
    int threads = argc == 3 || argc == 4 ? atoi(argv[1]) : 0;
    if (threads < 1 || threads > THREADS_MAX || (argc == 4 && strcmp(argv[3], "spin") != 0)) {
        fprintf(stderr, "usage: memory_store THREADS ROUNDS [spin]\n");
        return 2;
    }
    rounds = atol(argv[2]);
    if (!open_store(argc == 4)) return 1;
    pthread_t started[THREADS_MAX];
    for (int i = 0; i < threads; i++)
        if (pthread_create(&started[i], NULL, count, NULL) != 0) return 1;
    for (int i = 0; i < threads; i++)
        pthread_join(started[i], NULL);
    dlock_client_free(client);
    printf("counted to %ld of %ld\n", counter, threads * rounds);
    return counter == threads * rounds ? 0 : 1;
}
