/* SPDX-License-Identifier: BSD-3-Clause */
/* custom_world.h - a store that can be held up, and attempts at it, for the tests of
 * deployment/custom.c. Link without deployment/withdrawal.c. */
#pragma once
#include "deployment/deployment.h"

#include "base/platform.h"
#include "base/text.h"
#include "unit.h"
#include <pthread.h>

enum { LONG_MS = 20000, SHORT_MS = 30, ATTEMPTS = 12 };

/* The store: one lock, whose functions can be held up. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_blocked;
    bool is_release_free;    /* releases and extensions are not held up */
    bool looks;              /* a call that is held up ends once it is canceled */
    int inside, most_inside; /* calls that go on */
    int acquires, extends, releases, frees;
    dlock_status acquire_status, release_status;
    char released[DLOCK_TOKEN_SIZE];
    dlock_mode mode; /* of the last acquire */
    uint32_t max_holders;
    int64_t deadline_us;
} store = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static loop *test_loop;
static deployment *custom;
static atomic_uint_least64_t commands;
static int withdrawn;

void withdrawals_add(deployment *deployment, const attempt *withdrawn_attempt, uint32_t lease_ms) {
    const char *name = withdrawn_attempt->name, *token = withdrawn_attempt->token;
    (void)deployment;
    (void)token;
    (void)lease_ms;
    CHECK(strcmp(name, "lock") == 0);
    withdrawn++;
}

static bool is_held_up(const dlock_call *call) {
    if (store.is_release_free && call->operation != DLOCK_ACQUIRING) return false;
    return store.is_blocked && !(store.looks && dlock_call_is_canceled(call));
}

static void enter(const dlock_call *call, int *count) {
    loop_lock(test_loop); /* nobody holds the mutex while the store works */
    loop_unlock(test_loop);
    pthread_mutex_lock(&store.mutex);
    ++*count;
    if (++store.inside > store.most_inside) store.most_inside = store.inside;
    pthread_cond_broadcast(&store.changed);
    while (is_held_up(call))
        pthread_cond_wait(&store.changed, &store.mutex);
    store.inside--;
}

static dlock_status acquire(void *arg, dlock_call *call, int64_t limit_us) {
    enter(call, &store.acquires);
    store.mode = call->mode;
    store.deadline_us = call->deadline_us;
    store.max_holders = call->max_holders;
    dlock_status status = store.acquire_status;
    pthread_mutex_unlock(&store.mutex);
    CHECK(arg == &store && strcmp(call->name, "lock") == 0 && limit_us > 0);
    call->fence = 42;
    const char *cause = status == DLOCK_OK ? "" : "as the test wants";
    text_keep(&call->cause, DLOCK_CAUSE_SIZE, cause);
    return status;
}

static dlock_status extend(void *arg, dlock_call *call, int64_t limit_us) {
    (void)arg;
    (void)limit_us;
    enter(call, &store.extends);
    pthread_mutex_unlock(&store.mutex);
    text_keep(&call->cause, DLOCK_CAUSE_SIZE, "gone");
    return DLOCK_LOST;
}

static dlock_status release(void *arg, dlock_call *call, int64_t limit_us) {
    (void)arg;
    (void)limit_us;
    enter(call, &store.releases);
    text_copy(store.released, sizeof(store.released), call->token);
    dlock_status status = store.release_status;
    pthread_cond_broadcast(&store.changed);
    pthread_mutex_unlock(&store.mutex);
    return status;
}

static void free_store(void *arg) {
    CHECK(arg == &store);
    store.frees++;
}

/* Stands for handlers/chain.c: a copy has no start. */
bool dlock_call_is_canceled(const dlock_call *call) {
    const atomic_bool *is_abandoned = call->internal;
    CHECK_EQUAL(call->started_us, 0);
    return is_abandoned != NULL && atomic_load(is_abandoned);
}

static void set_blocked(bool is_blocked) {
    pthread_mutex_lock(&store.mutex);
    store.is_blocked = is_blocked;
    pthread_cond_broadcast(&store.changed);
    pthread_mutex_unlock(&store.mutex);
}

static void wait_for(const int *count, int expected) {
    pthread_mutex_lock(&store.mutex);
    while (*count < expected)
        pthread_cond_wait(&store.changed, &store.mutex);
    pthread_mutex_unlock(&store.mutex);
}

/* -- attempts */

typedef struct try {
    attempt attempt;
    char token[DLOCK_TOKEN_SIZE];
    waiter waiter;
    bool is_done;
}
try;

static void on_done(attempt *attempt) {
    try *try = attempt->arg;
    CHECK(!try->is_done);
    try->is_done = true;
    loop_ready(test_loop, &try->waiter);
}

static void begin_with(bool waits) {
    char name[] = "test"; /* borrowed for the call */
    dlock_backend table = {.struct_size = sizeof(table),
                           .name = name,
                           .arg = &store,
                           .acquire = acquire,
                           .extend = extend,
                           .release = release,
                           .free = free_store,
                           .waits = waits};
    store.is_blocked = store.is_release_free = store.looks = false;
    store.inside = store.most_inside = 0;
    store.acquires = store.extends = store.releases = store.frees = withdrawn = 0;
    store.acquire_status = store.release_status = DLOCK_OK;
    atomic_store(&commands, 0);
    test_loop = loop_new(clock_system());
    server_options options = {
        .loop = test_loop, .io_timeout_ms = LONG_MS, .command_count = &commands};
    custom = custom_new(&table, &options);
    memset(name, '?', sizeof(name) - 1);
    memset(&table, 0, sizeof(table));
}

static void begin(void) {
    begin_with(false);
}

static void end(void) {
    loop_lock(test_loop);
    custom->table->free(custom);
    loop_unlock(test_loop);
    loop_free(test_loop);
    CHECK_EQUAL(store.frees, 1);
}

static void start(try *try, dlock_operation operation, int64_t limit_ms) {
    attempt *attempt = &try->attempt;
    loop_lock(test_loop);
    CHECK(attempt_prepare(attempt, custom));
    if (attempt->token == NULL) text_copy(try->token, sizeof(try->token), "me");
    attempt->token = try->token;
    attempt->operation = operation;
    attempt->name = "lock";
    attempt->lease_ms = 1000;
    attempt->limit_us = deadline_after_ms(loop_now_us(test_loop), limit_ms);
    attempt->on_done = on_done;
    attempt->arg = try;
    try->is_done = false;
    deployment_start(custom, attempt);
    CHECK(!try->is_done);
    loop_unlock(test_loop);
}

static void finish(try *try) {
    loop_lock(test_loop);
    while (!try->is_done)
        loop_wait(test_loop, &try->waiter);
    loop_unlock(test_loop);
}

static void abandon(try *try) {
    loop_lock(test_loop);
    deployment_abandon(custom, &try->attempt);
    loop_unlock(test_loop);
}

static void check(const try *try, dlock_status status, bool is_transient, const char *cause) {
    CHECK_EQUAL(try->attempt.status, status);
    CHECK(try->attempt.is_transient == is_transient);
    CHECK(strcmp(try->attempt.cause, cause) == 0);
}
