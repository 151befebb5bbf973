/* SPDX-License-Identifier: BSD-3-Clause */
/* custom_test.c - a store of the program's own, which may block: called by threads of the library,
 * bounded by the limit of the attempt. Link without deployment/withdrawal.c. */
#include "deployment/deployment.h"

#include "base/clock.h"
#include "base/text.h"
#include "unit.h"
#include <pthread.h>

enum { LONG_MS = 20000, SHORT_MS = 30, ATTEMPTS = 12 };

/* The store: one lock, whose functions can be held up. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_blocked;
    int inside, most_inside; /* calls that go on */
    int acquires, extends, releases, frees;
    dlock_status acquire_status, release_status;
    char released[DLOCK_TOKEN_SIZE];
    dlock_mode mode; /* of the last acquire */
    uint32_t max_holders;
} store = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static loop *test_loop;
static deployment *custom;
static atomic_uint_least64_t commands;
static int withdrawn;

void withdrawals_add(deployment *deployment, const char *name, const char *token,
                     uint32_t lease_ms) {
    (void)deployment;
    (void)token;
    (void)lease_ms;
    CHECK(strcmp(name, "lock") == 0);
    withdrawn++;
}

static void enter(int *count) {
    loop_lock(test_loop); /* nobody holds the mutex while the store works */
    loop_unlock(test_loop);
    pthread_mutex_lock(&store.mutex);
    ++*count;
    if (++store.inside > store.most_inside) store.most_inside = store.inside;
    pthread_cond_broadcast(&store.changed);
    while (store.is_blocked)
        pthread_cond_wait(&store.changed, &store.mutex);
    store.inside--;
}

static dlock_status acquire(void *arg, dlock_call *call, int64_t limit_us) {
    enter(&store.acquires);
    store.mode = call->mode;
    store.max_holders = call->max_holders;
    dlock_status status = store.acquire_status;
    pthread_mutex_unlock(&store.mutex);
    CHECK(arg == &store && strcmp(call->name, "lock") == 0 && limit_us > 0);
    CHECK(!dlock_call_is_canceled(call));
    call->fence = 42;
    const char *cause = status == DLOCK_OK ? "" : "as the test wants";
    text_keep(&call->cause, DLOCK_CAUSE_SIZE, cause);
    return status;
}

static dlock_status extend(void *arg, dlock_call *call, int64_t limit_us) {
    (void)arg;
    (void)limit_us;
    enter(&store.extends);
    pthread_mutex_unlock(&store.mutex);
    text_keep(&call->cause, DLOCK_CAUSE_SIZE, "gone");
    return DLOCK_LOST;
}

static dlock_status release(void *arg, dlock_call *call, int64_t limit_us) {
    (void)arg;
    (void)limit_us;
    enter(&store.releases);
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
    return call->started_us != 0;
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

static void begin(void) {
    dlock_backend table = {.struct_size = sizeof(table),
                           .name = "test",
                           .arg = &store,
                           .acquire = acquire,
                           .extend = extend,
                           .release = release,
                           .free = free_store};
    store.is_blocked = false;
    store.inside = store.most_inside = 0;
    store.acquires = store.extends = store.releases = store.frees = withdrawn = 0;
    store.acquire_status = store.release_status = DLOCK_OK;
    atomic_store(&commands, 0);
    test_loop = loop_new(clock_system());
    server_options options = {
        .loop = test_loop, .io_timeout_ms = LONG_MS, .command_count = &commands};
    custom = custom_new(&table, &options);
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

/* -- cases */

static void the_answer_is_the_stores(void) {
    try try = {0};
    begin();
    int64_t before_us = clock_now_us(clock_system());
    start(&try, DLOCK_ACQUIRING, LONG_MS);
    finish(&try);
    check(&try, DLOCK_OK, false, "");
    CHECK_EQUAL((int64_t)try.attempt.fence, 42);
    CHECK(try.attempt.asked_us >= before_us);
    start(&try, DLOCK_EXTENDING, LONG_MS);
    finish(&try);
    check(&try, DLOCK_LOST, false, "gone");
    start(&try, DLOCK_RELEASING, LONG_MS);
    finish(&try);
    check(&try, DLOCK_OK, false, "");
    CHECK_EQUAL((int64_t)atomic_load(&commands), 3);
    attempt_free(&try.attempt);
    end();
}

static void an_acquire_in_doubt_may_hold(void) {
    try try = {0};
    begin();
    store.acquire_status = DLOCK_IN_DOUBT;
    start(&try, DLOCK_ACQUIRING, LONG_MS);
    finish(&try);
    check(&try, DLOCK_IN_DOUBT, true, "as the test wants");
    CHECK(try.attempt.may_hold);
    store.acquire_status = DLOCK_UNREACHABLE;
    start(&try, DLOCK_ACQUIRING, LONG_MS);
    finish(&try);
    check(&try, DLOCK_UNREACHABLE, true, "as the test wants");
    CHECK(!try.attempt.may_hold);
    CHECK(strcmp(try.attempt.token, "me") == 0);
    attempt_free(&try.attempt);
    end();
}

static void an_attempt_ends_although_the_store_does_not_return(void) {
    try try = {0};
    begin();
    set_blocked(true);
    start(&try, DLOCK_ACQUIRING, SHORT_MS);
    wait_for(&store.acquires, 1);
    finish(&try);
    check(&try, DLOCK_IN_DOUBT, true, "test: no answer in time");
    start(&try, DLOCK_ACQUIRING, LONG_MS);
    CHECK(strcmp(try.attempt.token, "me~2") == 0);
    set_blocked(false);
    finish(&try);
    check(&try, DLOCK_OK, false, "");
    wait_for(&store.releases, 1); /* of the first one, which was granted too late */
    attempt_free(&try.attempt);
    end();
    CHECK(strcmp(store.released, "me") == 0);
    CHECK_EQUAL(store.releases, 1);
}

static void an_abandoned_acquire_is_released_by_its_thread(void) {
    try try = {0};
    begin();
    set_blocked(true);
    start(&try, DLOCK_ACQUIRING, LONG_MS);
    wait_for(&store.acquires, 1);
    abandon(&try);
    attempt_free(&try.attempt);
    store.release_status = DLOCK_UNREACHABLE;
    set_blocked(false);
    wait_for(&store.releases, 1);
    end();
    CHECK(!try.is_done);
    CHECK_EQUAL(withdrawn, 1);
}

static void an_abandoned_acquire_that_was_busy_needs_no_release(void) {
    try try = {0};
    begin();
    set_blocked(true);
    store.acquire_status = DLOCK_BUSY;
    start(&try, DLOCK_ACQUIRING, LONG_MS);
    wait_for(&store.acquires, 1);
    abandon(&try);
    attempt_free(&try.attempt);
    set_blocked(false);
    end();
    CHECK_EQUAL(store.releases, 0);
}

static void only_so_many_threads_call_the_store(void) {
    static try tries[ATTEMPTS];
    memset(tries, 0, sizeof(tries));
    begin();
    set_blocked(true);
    for (int i = 0; i < ATTEMPTS; i++)
        start(&tries[i], DLOCK_ACQUIRING, i == ATTEMPTS - 1 ? SHORT_MS : LONG_MS);
    wait_for(&store.acquires, 8);
    abandon(&tries[ATTEMPTS - 2]);
    finish(&tries[ATTEMPTS - 1]);
    check(&tries[ATTEMPTS - 1], DLOCK_UNREACHABLE, true, "test: no thread was free in time");
    set_blocked(false);
    for (int i = 0; i < ATTEMPTS - 2; i++)
        finish(&tries[i]);
    end();
    CHECK_EQUAL(store.most_inside, 8);
    CHECK_EQUAL(store.acquires, ATTEMPTS - 2); /* neither the abandoned one nor the late one */
    CHECK_EQUAL(store.releases, 0);
    for (int i = 0; i < ATTEMPTS; i++)
        attempt_free(&tries[i].attempt);
}

static void the_store_is_told_the_mode(void) {
    try try = {0};
    begin();
    CHECK(!custom->can_share); /* the table does not say that the store can */
    try.attempt.mode = DLOCK_SHARED;
    try.attempt.max_holders = 5;
    start(&try, DLOCK_ACQUIRING, LONG_MS);
    finish(&try);
    CHECK_EQUAL(store.mode, DLOCK_SHARED);
    CHECK_EQUAL(store.max_holders, 5);
    attempt_free(&try.attempt);
    end();
}

static void many_attempts_one_after_the_other(void) {
    try try = {0};
    begin();
    for (int i = 0; i < 2000; i++) {
        start(&try, DLOCK_ACQUIRING, LONG_MS);
        finish(&try);
        CHECK_EQUAL(try.attempt.status, DLOCK_OK);
    }
    attempt_free(&try.attempt);
    end();
}

static void a_client_that_was_never_used(void) {
    begin();
    end();
}

int main(void) {
    UNIT_RUN(the_answer_is_the_stores);
    UNIT_RUN(an_acquire_in_doubt_may_hold);
    UNIT_RUN(an_attempt_ends_although_the_store_does_not_return);
    UNIT_RUN(an_abandoned_acquire_is_released_by_its_thread);
    UNIT_RUN(an_abandoned_acquire_that_was_busy_needs_no_release);
    UNIT_RUN(only_so_many_threads_call_the_store);
    UNIT_RUN(the_store_is_told_the_mode);
    UNIT_RUN(many_attempts_one_after_the_other);
    UNIT_RUN(a_client_that_was_never_used);
    return unit_summary();
}
