/* SPDX-License-Identifier: BSD-3-Clause */
/* stress.c - many threads on one client, doing everything at once; for the sanitizers.
 *
 *   stress URL[,URL...] SECONDS [shared] [hot] [calm]
 *
 * Fails if a writer holds a name together with anybody, if more than PERMITS hold the name that has
 * permits, if the fence of a writer is not larger than all before, or if an answer comes that a
 * healthy server does not give. Prints how much was done.
 *
 * shared: with readers, permits, renewals and sessions; without, all are writers. Fails as well if
 * no two readers ever held a name together, or not all permits were ever in use. With several
 * servers there are neither permits nor sessions: majorities cannot count.
 *
 * hot: with local locks that come and go, for one name by hand and for others by contention, with
 * hand-on, and with leases so different that a lock that is handed on is often renewed first.
 *
 * calm: cancels less often, for connections that take long to make; each cancel ends one. */
#include "either_form.h"

#include "program.h"

enum { URLS_MAX = 15, THREADS = 16, NAMES = 4, ROUNDS = 4, LEASE_MS = 30000 };
enum { PERMITS = 3, PERMIT_NAME = NAMES - 1 }; /* the last name has permits instead of readers */
enum { WRITER = -1000 };                       /* in the count of holders */

typedef struct worker {
    uint64_t chance;
    uint64_t reads, writes, canceled, busy;
    pthread_mutex_t mutex; /* of to_cancel, and held while a lock goes away */
    dlock_lock *to_cancel;
} worker;

static dlock_client *client;
static worker workers[THREADS];
static bool is_mixed, is_hot, is_calm, has_permits;
static atomic_int inside[NAMES];        /* holders now */
static atomic_int most[NAMES];          /* shared holders at a time */
static _Atomic uint64_t written[NAMES]; /* the fence of the last writer */
static _Atomic uint64_t highest[NAMES]; /* of all fences */
static atomic_bool is_over;

static void fail(const char *what, dlock_status status, const dlock_lock *lock) {
    fprintf(stderr, "stress: %s: %s: %s\n", what, dlock_status_name(status),
            lock == NULL ? dlock_error() : dlock_last_error(lock));
    exit(1);
}

static void must(const char *what, dlock_status status, const dlock_lock *lock) {
    if (status != DLOCK_OK) fail(what, status, lock);
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
    uint64_t fence = dlock_fence(lock);
    if (!atomic_compare_exchange_strong(&inside[name], &before, WRITER))
        fail("a writer is not alone", DLOCK_OK, lock);
    if (fence <= atomic_load(&highest[name])) fail("the fence of a writer", DLOCK_OK, lock);
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
    (is_shared ? enter_reader : enter_writer)(name, lock);
    if (is_mixed) pause_us((long)(next_chance(w) % 300));
    if (next_chance(w) % 4 == 0) must("extend", dlock_extend(lock, LEASE_MS), lock);
    if (dlock_get_state(lock) != DLOCK_STATE_HELD) fail("state", DLOCK_OK, lock);
    atomic_fetch_sub(&inside[name], is_shared ? 1 : WRITER);
    must("release", dlock_release(lock), lock);
    ++*(is_shared ? &w->reads : &w->writes);
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

static void set_cancelable(worker *w, dlock_lock *lock) {
    pthread_mutex_lock(&w->mutex);
    w->to_cancel = lock;
    pthread_mutex_unlock(&w->mutex);
}

static void one_lock(worker *w) {
    char text[32];
    int name = (int)(next_chance(w) % NAMES);
    bool is_shared = is_mixed && next_chance(w) % 4 != 0;
    dlock_lock *lock;
    dlock_lock_options options = terms_of(LEASE_MS, is_shared ? DLOCK_SHARED : DLOCK_EXCLUSIVE);
    if (is_hot && next_chance(w) % 4 == 0) options.lease_ms *= 3;
    options.max_holders = is_shared && name == PERMIT_NAME && has_permits ? PERMITS : 0;
    options.renew_every_ms = is_mixed && next_chance(w) % 2 == 0 ? 10 : 0;
    options.session = is_mixed && has_permits && next_chance(w) % 8 == 0;
    snprintf(text, sizeof(text), "name %d", name);
    must("lock_new", dlock_lock_new(&lock, client, text, &options), NULL);
    set_cancelable(w, lock);
    for (int i = 0; i < ROUNDS; i++)
        use(w, lock, name, is_shared);
    set_cancelable(w, NULL);
    dlock_lock_free(lock);
}

static void *work(void *number) {
    while (!atomic_load(&is_over))
        one_lock(&workers[(intptr_t)number]);
    return NULL;
}

/* Nobody waits for ever while somebody cancels everybody. One of the names has a local lock most of
 * the time. */
static void disturb(int64_t seconds) {
    time_t end = time(NULL) + seconds;
    for (int i = 0; time(NULL) < end; i++) {
        worker *w = &workers[i % THREADS];
        pthread_mutex_lock(&w->mutex);
        dlock_cancel(w->to_cancel);
        pthread_mutex_unlock(&w->mutex);
        if (is_hot)
            must("hotspot",
                 i % 4 == 3 ? dlock_hotspot_remove(client, "name 0")
                            : dlock_hotspot_add(client, "name 0"),
                 NULL);
        stats_of(client);
        pause_us(is_calm ? 100000 : is_mixed ? 2000 : 500);
    }
}

static void connect_to(char *list) {
    const char *urls[URLS_MAX];
    dlock_client_options options = options_for(urls, 0);
    for (char *each = strtok(list, ","); each != NULL; each = strtok(NULL, ","))
        if (options.url_count < URLS_MAX) urls[options.url_count++] = each;
    if (is_hot) {
        options.hotspot_auto = NAMES / 2;
        options.hotspot_hand_on = 3;
    }
    has_permits = options.url_count == 1;
    must("client_new", dlock_client_new(&client, &options), NULL);
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    worker sum = {0};
    if (argc < 3) return 2;
    for (int i = 3; i < argc; i++) {
        is_mixed = is_mixed || strcmp(argv[i], "shared") == 0;
        is_hot = is_hot || strcmp(argv[i], "hot") == 0;
        is_calm = is_calm || strcmp(argv[i], "calm") == 0;
    }
    connect_to(argv[1]);
    for (int i = 0; i < THREADS; i++) {
        workers[i].chance = 88172645463325252u + (uint64_t)i;
        pthread_mutex_init(&workers[i].mutex, NULL);
    }
    start_threads(threads, THREADS, work);
    disturb(atoi(argv[2]));
    atomic_store(&is_over, true);
    dlock_client_cancel(client);
    join_threads(threads, THREADS);
    for (int i = 0; i < THREADS; i++) {
        sum.reads += workers[i].reads;
        sum.writes += workers[i].writes;
        sum.canceled += workers[i].canceled;
        sum.busy += workers[i].busy;
    }
    uint64_t hand_ons = stats_of(client).hand_ons;
    dlock_client_free(client);
    printf("reads %llu, writes %llu, canceled %llu, busy %llu, handed on %llu; together %d to %d\n",
           (unsigned long long)sum.reads, (unsigned long long)sum.writes,
           (unsigned long long)sum.canceled, (unsigned long long)sum.busy,
           (unsigned long long)hand_ons, most[0], most[PERMIT_NAME]);
    bool is_shared = most[0] > 1 && (!has_permits || most[PERMIT_NAME] == PERMITS);
    return sum.writes > 0 && sum.canceled > 0 && sum.busy > 0 && (is_hot || hand_ons == 0) &&
                   (is_shared || !is_mixed)
               ? 0
               : 1;
}
