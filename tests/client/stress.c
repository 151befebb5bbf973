/* SPDX-License-Identifier: BSD-3-Clause */
/* stress.c - many threads on one client, doing everything at once; for the sanitizers.
 *
 *   stress URL[,URL...] SECONDS [hot | calm]
 *
 * Fails if two threads hold one name at a time, if a fence does not grow, or if an answer comes
 * that a healthy server does not give. Prints how much was done.
 *
 * hot: with local locks that come and go, for one name by hand and for others by contention, with
 * hand-on, and with leases so different that a lock that is handed on is often renewed first.
 *
 * calm: cancels less often, for connections that take long to make; each cancel ends one. */
#include "either_form.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { URLS_MAX = 15, THREADS = 16, NAMES = 4, ROUND_LOCKS = 3, LEASE_MS = 30000 };

typedef struct worker {
    pthread_t thread;
    int number;
    uint64_t chance;
    uint64_t acquired, canceled, busy;
} worker;

static dlock_client *client;
static bool is_hot, is_calm;
static atomic_int holders[NAMES];
static atomic_uint_least64_t fences[NAMES];
static atomic_bool is_over;
static _Atomic(dlock_lock *) to_cancel[THREADS];
static pthread_mutex_t cancel_mutex[THREADS]; /* held while the lock may go away */

static void fail(const char *what, dlock_status status, const dlock_lock *lock) {
    fprintf(stderr, "stress: %s: %s: %s\n", what, dlock_status_name(status),
            lock == NULL ? "" : dlock_last_error(lock));
    exit(1);
}

static uint64_t next_chance(worker *w) {
    w->chance ^= w->chance << 13;
    w->chance ^= w->chance >> 7;
    w->chance ^= w->chance << 17;
    return w->chance;
}

static void hold(worker *w, dlock_lock *lock, int name) {
    int before = 0;
    if (!atomic_compare_exchange_strong(&holders[name], &before, w->number + 1))
        fail("two hold one name", DLOCK_OK, lock);
    uint64_t fence = dlock_fence(lock);
    uint64_t last = atomic_exchange(&fences[name], fence);
    if (last >= fence) fail("a fence", DLOCK_OK, lock);
    if (next_chance(w) % 4 == 0) {
        dlock_status status = dlock_extend(lock, LEASE_MS);
        if (status != DLOCK_OK) fail("extend", status, lock);
    }
    if (dlock_get_state(lock) != DLOCK_STATE_HELD) fail("state", DLOCK_OK, lock);
    atomic_store(&holders[name], 0);
    dlock_status status = dlock_release(lock);
    if (status != DLOCK_OK) fail("release", status, lock);
    w->acquired++;
}

static void use(worker *w, dlock_lock *lock, int name) {
    static const int64_t waits_ms[] = {DLOCK_NO_WAIT, 1, 20, 1000, DLOCK_WAIT_FOREVER};
    dlock_status status = dlock_acquire(lock, waits_ms[next_chance(w) % 5]);
    if (status == DLOCK_OK)
        hold(w, lock, name);
    else if (status == DLOCK_CANCELED)
        dlock_uncancel(lock), w->canceled++;
    else if (status == DLOCK_BUSY || status == DLOCK_TIMEOUT)
        w->busy++;
    else
        fail("acquire", status, lock);
}

static void one_lock(worker *w) {
    char text[32];
    int name = (int)(next_chance(w) % NAMES);
    dlock_lock *lock;
    dlock_lock_options options;
    dlock_lock_options_init(&options);
    options.lease_ms = is_hot && next_chance(w) % 4 == 0 ? 3 * LEASE_MS : LEASE_MS;
    snprintf(text, sizeof(text), "name %d", name);
    dlock_status status = dlock_lock_new(&lock, client, text, &options);
    if (status != DLOCK_OK) fail("lock_new", status, NULL);
    atomic_store(&to_cancel[w->number], lock);
    for (int i = 0; i < ROUND_LOCKS; i++)
        use(w, lock, name);
    pthread_mutex_lock(&cancel_mutex[w->number]);
    atomic_store(&to_cancel[w->number], NULL);
    pthread_mutex_unlock(&cancel_mutex[w->number]);
    dlock_lock_free(lock);
}

static void *work(void *data) {
    worker *w = data;
    while (!atomic_load(&is_over))
        one_lock(w);
    return NULL;
}

/* One of the names has a local lock most of the time. */
static void come_and_go(int round) {
    dlock_status status = round % 4 == 3 ? dlock_hotspot_remove(client, "name 0")
                                         : dlock_hotspot_add(client, "name 0");
    if (status != DLOCK_OK) fail("hotspot", status, NULL);
}

static void cancel_one(int number) {
    pthread_mutex_lock(&cancel_mutex[number]);
    dlock_lock *lock = atomic_load(&to_cancel[number]);
    dlock_cancel(lock);
    pthread_mutex_unlock(&cancel_mutex[number]);
}

/* Nobody waits for ever while somebody cancels everybody. */
static void disturb(int64_t seconds) {
    struct timespec pause = {.tv_nsec = is_calm ? 100000000 : 500000};
    time_t end = time(NULL) + seconds;
    for (int i = 0; time(NULL) < end; i++) {
        cancel_one(i % THREADS);
        if (is_hot) come_and_go(i);
        dlock_client_stats stats = {.struct_size = sizeof(stats)};
        dlock_client_get_stats(client, &stats);
        nanosleep(&pause, NULL);
    }
}

static size_t split(char *list, const char *urls[URLS_MAX]) {
    size_t count = 0;
    for (char *each = strtok(list, ","); each != NULL && count < URLS_MAX; each = strtok(NULL, ","))
        urls[count++] = each;
    return count;
}

int main(int argc, char **argv) {
    static worker workers[THREADS];
    const char *urls[URLS_MAX];
    if (argc != 3 && argc != 4) return 2;
    is_hot = argc == 4 && strcmp(argv[3], "hot") == 0;
    is_calm = argc == 4 && strcmp(argv[3], "calm") == 0;
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.url_count = split(argv[1], urls);
    options.urls = urls;
    options.io_timeout_ms = 20000; /* sanitizers are slow */
    options.connect_timeout_ms = 20000;
    if (is_hot) {
        options.hotspot_auto = NAMES / 2;
        options.hotspot_hand_on = 3;
    }
    dlock_status status = dlock_client_new(&client, &options);
    if (status != DLOCK_OK) fail("client_new", status, NULL);
    for (int i = 0; i < THREADS; i++) {
        workers[i].number = i;
        workers[i].chance = 88172645463325252u + (uint64_t)i;
        pthread_mutex_init(&cancel_mutex[i], NULL);
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    disturb(atoi(argv[2]));
    atomic_store(&is_over, true);
    dlock_client_cancel(client);
    uint64_t acquired = 0, canceled = 0, busy = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        acquired += workers[i].acquired;
        canceled += workers[i].canceled;
        busy += workers[i].busy;
    }
    dlock_client_stats stats = {.struct_size = sizeof(stats)};
    dlock_client_get_stats(client, &stats);
    dlock_client_free(client);
    printf("acquired %llu, canceled %llu, busy %llu, handed on %llu\n",
           (unsigned long long)acquired, (unsigned long long)canceled, (unsigned long long)busy,
           (unsigned long long)stats.hand_ons);
    return acquired > 0 && canceled > 0 && busy > 0 && (is_hot || stats.hand_ons == 0) ? 0 : 1;
}
