/* SPDX-License-Identifier: BSD-3-Clause */
/* shared.c - readers, writers and permits on one client, doing everything at once; for the
 * sanitizers.
 *
 *   shared URL[,URL...] SECONDS [hot]
 *
 * Fails if a writer holds a name together with anybody, if more than PERMITS hold a name with that
 * limit, if the fence of a writer is not larger than all before, or if an answer comes that a
 * healthy server does not give. Fails as well if no two readers ever held a name together, or not
 * all permits were ever in use. Prints how much was done. With several servers there are no
 * permits: majorities cannot count.
 *
 * hot: all names have local locks, with hand-on. Then the fence of a writer may be that of the
 * writer before. */
#include "either_form.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { URLS_MAX = 15, THREADS = 16, NAMES = 3, ROUNDS = 4, LEASE_MS = 30000 };
enum { PERMITS = 3, PERMIT_NAME = NAMES - 1 }; /* the last name has permits instead of readers */
enum { WRITER = -1000 };                       /* in the count of holders */

typedef struct worker {
    pthread_t thread;
    int number;
    uint64_t chance;
    uint64_t reads, writes, canceled, busy;
} worker;

static dlock_client *client;
static bool is_hot, has_permits;
static atomic_int inside[NAMES];        /* holders now */
static atomic_int most[NAMES];          /* shared holders at a time */
static _Atomic uint64_t written[NAMES]; /* the fence of the last writer */
static _Atomic uint64_t highest[NAMES]; /* of all fences */
static atomic_bool is_over;
static dlock_lock *to_cancel[THREADS];
static pthread_mutex_t cancel_mutex[THREADS]; /* of to_cancel, and held while a lock goes away */

static void fail(const char *what, dlock_status status, const dlock_lock *lock) {
    fprintf(stderr, "shared: %s: %s: %s\n", what, dlock_status_name(status),
            lock == NULL ? "" : dlock_last_error(lock));
    exit(1);
}

static uint64_t next_chance(worker *w) {
    w->chance ^= w->chance << 13;
    w->chance ^= w->chance >> 7;
    w->chance ^= w->chance << 17;
    return w->chance;
}

static void raise_to(_Atomic uint64_t *number, uint64_t value) {
    uint64_t seen = atomic_load(number);
    while (seen < value && !atomic_compare_exchange_weak(number, &seen, value)) {
    }
}

static void raise_most(atomic_int *number, int value) {
    int seen = atomic_load(number);
    while (seen < value && !atomic_compare_exchange_weak(number, &seen, value)) {
    }
}

/* -- the checker: begins after the grant, and ends before the release */

static void enter_writer(int name, const dlock_lock *lock) {
    int before = 0;
    uint64_t fence = dlock_fence(lock), last = atomic_load(&highest[name]);
    if (!atomic_compare_exchange_strong(&inside[name], &before, WRITER))
        fail("a writer is not alone", DLOCK_OK, lock);
    bool is_handed_on = is_hot && fence == atomic_load(&written[name]);
    if (fence < last || (fence == last && !is_handed_on))
        fail("the fence of a writer", DLOCK_OK, lock);
    atomic_store(&written[name], fence);
    raise_to(&highest[name], fence);
}

static void enter_reader(int name, const dlock_lock *lock) {
    int before = atomic_fetch_add(&inside[name], 1);
    if (before < 0) fail("a reader beside a writer", DLOCK_OK, lock);
    if (name == PERMIT_NAME && has_permits && before >= PERMITS)
        fail("too many permits", DLOCK_OK, lock);
    if (dlock_fence(lock) <= atomic_load(&written[name]))
        fail("the fence of a reader", DLOCK_OK, lock);
    raise_to(&highest[name], dlock_fence(lock));
    raise_most(&most[name], before + 1);
}

static void hold(worker *w, dlock_lock *lock, int name, bool is_shared) {
    struct timespec work = {.tv_nsec = (long)(next_chance(w) % 300000)};
    (is_shared ? enter_reader : enter_writer)(name, lock);
    nanosleep(&work, NULL);
    if (next_chance(w) % 4 == 0) {
        dlock_status status = dlock_extend(lock, LEASE_MS);
        if (status != DLOCK_OK) fail("extend", status, lock);
    }
    if (dlock_get_state(lock) != DLOCK_STATE_HELD) fail("state", DLOCK_OK, lock);
    atomic_fetch_sub(&inside[name], is_shared ? 1 : WRITER);
    dlock_status status = dlock_release(lock);
    if (status != DLOCK_OK) fail("release", status, lock);
    if (is_shared)
        w->reads++;
    else
        w->writes++;
}

/* -- the threads */

static void use(worker *w, dlock_lock *lock, int name, bool is_shared) {
    static const int64_t waits_ms[] = {DLOCK_NO_WAIT, 1, 20, 1000, DLOCK_WAIT_FOREVER};
    dlock_status status = dlock_acquire(lock, waits_ms[next_chance(w) % 5]);
    if (status == DLOCK_OK)
        hold(w, lock, name, is_shared);
    else if (status == DLOCK_CANCELED)
        dlock_uncancel(lock), w->canceled++;
    else if (status == DLOCK_BUSY || status == DLOCK_TIMEOUT)
        w->busy++;
    else
        fail("acquire", status, lock);
}

static void set_cancelable(const worker *w, dlock_lock *lock) {
    pthread_mutex_lock(&cancel_mutex[w->number]);
    to_cancel[w->number] = lock;
    pthread_mutex_unlock(&cancel_mutex[w->number]);
}

static void one_lock(worker *w) {
    char text[32];
    int name = (int)(next_chance(w) % NAMES);
    bool is_shared = next_chance(w) % 4 != 0;
    dlock_lock *lock;
    dlock_lock_options options;
    dlock_lock_options_init(&options);
    options.lease_ms = LEASE_MS;
    options.mode = is_shared ? DLOCK_SHARED : DLOCK_EXCLUSIVE;
    options.max_holders = is_shared && name == PERMIT_NAME && has_permits ? PERMITS : 0;
    options.renew_every_ms = next_chance(w) % 2 == 0 ? 0 : 10;
    options.session = has_permits && next_chance(w) % 8 == 0;
    snprintf(text, sizeof(text), "name %d", name);
    dlock_status status = dlock_lock_new(&lock, client, text, &options);
    if (status != DLOCK_OK) fail("lock_new", status, NULL);
    set_cancelable(w, lock);
    for (int i = 0; i < ROUNDS; i++)
        use(w, lock, name, is_shared);
    set_cancelable(w, NULL);
    dlock_lock_free(lock);
}

static void *work(void *data) {
    worker *w = data;
    while (!atomic_load(&is_over))
        one_lock(w);
    return NULL;
}

static void cancel_one(int number) {
    pthread_mutex_lock(&cancel_mutex[number]);
    dlock_cancel(to_cancel[number]);
    pthread_mutex_unlock(&cancel_mutex[number]);
}

static void disturb(int64_t seconds) {
    struct timespec pause = {.tv_nsec = 2000000};
    time_t end = time(NULL) + seconds;
    for (int i = 0; time(NULL) < end; i++) {
        cancel_one(i % THREADS);
        nanosleep(&pause, NULL);
    }
}

static void connect_to(char *list) {
    const char *urls[URLS_MAX];
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = urls;
    for (char *each = strtok(list, ","); each != NULL; each = strtok(NULL, ","))
        if (options.url_count < URLS_MAX) urls[options.url_count++] = each;
    options.io_timeout_ms = 20000; /* sanitizers are slow */
    options.connect_timeout_ms = 20000;
    if (is_hot) options.hotspot_hand_on = 3;
    has_permits = options.url_count == 1;
    dlock_status status = dlock_client_new(&client, &options);
    if (status != DLOCK_OK) fail("client_new", status, NULL);
    for (int i = 0; is_hot && i < NAMES; i++) {
        char text[32];
        snprintf(text, sizeof(text), "name %d", i);
        status = dlock_hotspot_add(client, text);
        if (status != DLOCK_OK) fail("hotspot_add", status, NULL);
    }
}

static void finish(worker *w, worker *sum) {
    pthread_join(w->thread, NULL);
    sum->reads += w->reads;
    sum->writes += w->writes;
    sum->canceled += w->canceled;
    sum->busy += w->busy;
}

int main(int argc, char **argv) {
    static worker workers[THREADS], sum;
    if (argc != 3 && argc != 4) return 2;
    is_hot = argc == 4;
    connect_to(argv[1]);
    for (int i = 0; i < THREADS; i++) {
        workers[i].number = i;
        workers[i].chance = 88172645463325252u + (uint64_t)i;
        pthread_mutex_init(&cancel_mutex[i], NULL);
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    disturb(atoi(argv[2]));
    atomic_store(&is_over, true);
    dlock_client_cancel(client);
    for (int i = 0; i < THREADS; i++)
        finish(&workers[i], &sum);
    dlock_client_free(client);
    printf("reads %llu, writes %llu, canceled %llu, busy %llu; together %d, %d, %d\n",
           (unsigned long long)sum.reads, (unsigned long long)sum.writes,
           (unsigned long long)sum.canceled, (unsigned long long)sum.busy, most[0], most[1],
           most[2]);
    bool is_shared = most[0] > 1 && (!has_permits || most[PERMIT_NAME] == PERMITS);
    return sum.writes > 0 && sum.canceled > 0 && sum.busy > 0 && is_shared ? 0 : 1;
}
