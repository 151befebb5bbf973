/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting_store.c - a store whose acquire() waits by itself, first come, first served; see
 * dlock_backend.waits.
 *
 *   waiting_store FACT */
#include "program.h"

#include <stdatomic.h>

enum { NAMES = 2, WAITERS = 20, WAITS_MAX = 32, CROWD = 48, LONG_MS = 100000, SHORT_MS = 100 };

/* -- the store: the names are "0" and "1" */

typedef struct record {
    char token[DLOCK_TOKEN_SIZE]; /* of the holder; "": nobody */
    uint64_t fence;
    const dlock_call *waiting[CROWD]; /* the oldest first */
    int waiting_count;
    int refused; /* acquires that did not wait */
} record;

static record records[NAMES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Locked. For 10 ms at most. */
static void wait_for_change(void) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 10000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&changed, &mutex, &until);
}

static void grant(record *record, dlock_call *call) {
    snprintf(record->token, sizeof(record->token), "%s", call->token);
    call->fence = ++record->fence;
    call->asked_us = now_us();
}

static bool wait_for_turn(record *record, const dlock_call *call) {
    int place = 0;
    bool is_turn = false;
    CHECK(record->waiting_count < CROWD);
    record->waiting[record->waiting_count++] = call;
    pthread_cond_broadcast(&changed);
    while (!is_turn && now_us() < call->deadline_us && !dlock_call_is_canceled(call)) {
        wait_for_change();
        is_turn = record->token[0] == '\0' && record->waiting[0] == call;
    }
    while (record->waiting[place] != call)
        place++;
    record->waiting_count--;
    for (; place < record->waiting_count; place++)
        record->waiting[place] = record->waiting[place + 1];
    return is_turn;
}

static dlock_status acquire(void *arg, dlock_call *call, int64_t limit_us) {
    record *record = &records[call->name[0] - '0'];
    (void)arg;
    CHECK(limit_us > call->deadline_us || call->deadline_us == INT64_MAX);
    pthread_mutex_lock(&mutex);
    bool is_free = record->token[0] == '\0' && record->waiting_count == 0;
    bool is_waiting = !is_free && call->deadline_us > now_us();
    if (!is_free && !is_waiting) record->refused++;
    bool is_granted = is_free || (is_waiting && wait_for_turn(record, call));
    if (is_granted) grant(record, call);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    return is_granted ? DLOCK_OK : DLOCK_BUSY;
}

static dlock_status extend_or_release(dlock_call *call) {
    record *record = &records[call->name[0] - '0'];
    pthread_mutex_lock(&mutex);
    bool is_held = strcmp(record->token, call->token) == 0;
    if (is_held && call->operation == DLOCK_RELEASING) record->token[0] = '\0';
    call->asked_us = now_us();
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    return is_held ? DLOCK_OK : DLOCK_LOST;
}

static dlock_status extend(void *arg, dlock_call *call, int64_t limit_us) {
    (void)arg, (void)limit_us;
    return extend_or_release(call);
}

static dlock_status release(void *arg, dlock_call *call, int64_t limit_us) {
    (void)arg, (void)limit_us;
    return extend_or_release(call);
}

/* -- the callers */

static dlock_client *client;
static dlock_lock *held; /* "0" */
static atomic_int served;

typedef struct caller {
    pthread_t thread;
    dlock_lock *lock;
    int64_t wait_ms;
    dlock_status status;
    int place; /* in the order of service */
} caller;

static void *call_once(void *arg) {
    caller *caller = arg;
    caller->status = dlock_acquire(caller->lock, caller->wait_ms);
    if (caller->status != DLOCK_OK) return NULL;
    caller->place = atomic_fetch_add(&served, 1);
    CHECK(dlock_extend(caller->lock, 0) == DLOCK_OK);
    CHECK(dlock_release(caller->lock) == DLOCK_OK);
    return NULL;
}

static void start(caller *caller, int64_t wait_ms) {
    caller->lock = new_lock(client, "0", LONG_MS);
    caller->wait_ms = wait_ms;
    CHECK(pthread_create(&caller->thread, NULL, call_once, caller) == 0);
}

static void finish(caller *caller, dlock_status expected) {
    pthread_join(caller->thread, NULL);
    dlock_lock_free(caller->lock);
    CHECK(caller->status == expected);
}

static void wait_until(const int *count, int expected) {
    pthread_mutex_lock(&mutex);
    while (*count < expected)
        wait_for_change();
    pthread_mutex_unlock(&mutex);
}

/* -- facts */

FACT(waiters_are_served_in_their_order) {
    caller callers[WAITERS] = {0};
    for (int i = 0; i < WAITERS; i++) {
        start(&callers[i], LONG_MS);
        wait_until(&records[0].waiting_count, i + 1);
    }
    CHECK(dlock_release(held) == DLOCK_OK);
    for (int i = 0; i < WAITERS; i++) {
        finish(&callers[i], DLOCK_OK);
        CHECK(callers[i].place == i);
    }
    CHECK(records[0].refused == 0); /* each has asked once */
}

FACT(a_crowd_keeps_no_other_name_busy) {
    caller callers[CROWD] = {0};
    for (int i = 0; i < CROWD; i++)
        start(&callers[i], LONG_MS);
    wait_until(&records[0].waiting_count, WAITS_MAX);
    wait_until(&records[0].refused, CROWD - WAITS_MAX);
    dlock_lock *other = new_lock(client, "1", LONG_MS);
    CHECK(dlock_acquire(other, LONG_MS) == DLOCK_OK);
    CHECK(dlock_extend(held, 0) == DLOCK_OK);
    CHECK(dlock_release(other) == DLOCK_OK);
    dlock_lock_free(other);
    CHECK(dlock_release(held) == DLOCK_OK);
    for (int i = 0; i < CROWD; i++)
        finish(&callers[i], DLOCK_OK);
}

FACT(a_canceled_wait_ends_in_the_store) {
    caller caller = {0};
    start(&caller, DLOCK_WAIT_FOREVER);
    wait_until(&records[0].waiting_count, 1);
    dlock_cancel(caller.lock);
    finish(&caller, DLOCK_CANCELED);
    pthread_mutex_lock(&mutex);
    while (records[0].waiting_count > 0)
        wait_for_change();
    pthread_mutex_unlock(&mutex);
    CHECK(dlock_release(held) == DLOCK_OK);
}

FACT(a_wait_ends_at_its_deadline) {
    caller caller = {0};
    int64_t begun_us = now_us();
    start(&caller, SHORT_MS);
    finish(&caller, DLOCK_TIMEOUT);
    CHECK(now_us() - begun_us >= SHORT_MS * 1000);
    CHECK(dlock_release(held) == DLOCK_OK);
}

FACT(without_a_wait_the_store_is_asked_once) {
    caller caller = {0};
    start(&caller, DLOCK_NO_WAIT);
    finish(&caller, DLOCK_BUSY);
    CHECK(records[0].refused == 1);
    CHECK(dlock_release(held) == DLOCK_OK);
}

static void open_client(void) {
    dlock_backend store = {.struct_size = sizeof(store),
                           .name = "waiting",
                           .acquire = acquire,
                           .extend = extend,
                           .release = release,
                           .waits = true};
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &monotonic);
    dlock_client_options options = options_for(NULL, 0);
    options.backend = &store;
    options.spin_min_ms = 5; /* of those that do not wait in the store */
    CHECK(dlock_client_new(&client, &options) == DLOCK_OK);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    open_client();
    held = new_lock(client, "0", LONG_MS);
    CHECK(dlock_acquire(held, DLOCK_NO_WAIT) == DLOCK_OK);
    int code = run_fact(argv[1]);
    dlock_lock_free(held);
    dlock_client_free(client);
    return code;
}
