/* SPDX-License-Identifier: BSD-3-Clause */
/* custom.c - a program's own store (dlock_spi.h), called by threads since it may block.
 *
 *   start    copy the attempt into a job, queue the job in a pool, wake a thread or start one
 *   work     a thread takes the oldest job, calls the store without the mutex, and ends the attempt
 *            with the mutex
 *   limit    the attempt ends on time even if the store does not return
 *   detach   nobody waits any more, because of the limit or of abandon(). A job that no thread has
 *            begun is dropped. Else the thread finishes alone, and undoes an acquire
 *
 * Each pool has threads of its own:
 *
 *   pool      jobs                         when all threads are in use
 *   TRIES     acquires that do not wait    the job is queued
 *   WAITS     acquires that wait in the    the acquire goes to TRIES, is answered at once, and
 *             store (dlock_backend.waits)  comes again after a pause
 *   CHANGES   releases and extensions      the job is queued
 *
 * So a release never stands behind the acquires that wait for this release, and a free name is
 * granted however many acquires wait for other names.
 *
 * Invariants: the store is never called with the loop's mutex, which protects everything else here.
 * A job outlives its attempt if need be, and has a copy of all that the store sees. A detached
 * acquire and a later attempt never have the same token: the release at the end of the detached one
 * would take the lock away from the later one. */
#include "deployment/deployment.h"

enum { TRIES, WAITS, CHANGES, POOL_COUNT };

enum { THREADS_MAX = 32 };
static const size_t pool_sizes[POOL_COUNT] = {[TRIES] = 8, [WAITS] = THREADS_MAX, [CHANGES] = 8};

typedef struct pool {
    struct custom *custom;
    list queue;       /* job */
    size_t job_count; /* queued, or in the hands of a thread */
    pthread_t threads[THREADS_MAX];
    size_t thread_count;
    wakeup wakeup; /* of all threads: a job is queued */
} pool;

/* One call of the store. */
typedef struct job {
    list_node node; /* in the queue, until a thread begins */
    pool *pool;
    attempt *attempt;         /* NULL: detached */
    bool is_repeated;         /* an earlier acquire with the token may have been granted */
    atomic_bool is_abandoned; /* for dlock_call_is_canceled() */
    int64_t limit_us;
    dlock_call call;
    char token[DLOCK_TOKEN_SIZE];
    char name[];
} job;

typedef struct custom {
    deployment base;
    dlock_backend store;
    atomic_uint_least64_t *command_count;
    pool pools[POOL_COUNT];
    bool is_stopping;
    char name[]; /* of the store, for people */
} custom;

typedef struct custom_run {
    custom *custom;
    attempt *attempt;
    job *job;         /* NULL: none */
    loop_timer limit; /* without a job: tells that the attempt could not start */
} custom_run;

/* Locked before and after, but not while the store works. */
static dlock_status call_store(custom *custom, job *job) {
    const dlock_backend *store = &custom->store;
    dlock_call *call = &job->call;
    dlock_status (*function)(void *arg, dlock_call *call, int64_t limit_us) = store->release;
    if (call->operation == DLOCK_ACQUIRING) function = store->acquire;
    if (call->operation == DLOCK_EXTENDING) function = store->extend;
    loop_unlock(custom->base.loop);
    atomic_fetch_add_explicit(custom->command_count, 1, memory_order_relaxed);
    call->asked_us = clock_now_us(loop_clock(custom->base.loop));
    dlock_status status = function(store->arg, call, job->limit_us);
    loop_lock(custom->base.loop);
    return status;
}

static bool is_transient(dlock_status status) {
    return status == DLOCK_UNREACHABLE || status == DLOCK_IN_DOUBT;
}

/* -- the end of an attempt */

static void end_attempt(custom_run *run, dlock_status status, const char *cause) {
    attempt *attempt = run->attempt;
    loop_clear_timer(run->custom->base.loop, &run->limit);
    run->job = NULL;
    attempt_set_result(attempt, status, is_transient(status), cause);
    attempt->on_done(attempt);
}

static void end_by_job(job *job, dlock_status status) {
    attempt *attempt = job->attempt;
    const dlock_call *call = &job->call;
    if (call->operation == DLOCK_ACQUIRING && status == DLOCK_IN_DOUBT)
        attempt->fate = TOKEN_IN_DOUBT;
    if (status == DLOCK_OK) {
        attempt->asked_us = call->asked_us;
        attempt->lease_ms = call->lease_ms;
        if (call->operation == DLOCK_ACQUIRING) attempt->fence = call->fence;
    }
    end_attempt(attempt->prepared.run, status, status == DLOCK_OK ? "" : call->cause);
}

static void free_job(job *job) {
    list_remove(&job->node);
    job->pool->job_count--;
    text_drop(&job->call.cause);
    free(job);
}

/* True: the job is dropped, and the store will not hear of the call. */
static bool detach(custom_run *run) {
    job *job = run->job;
    bool is_dropped = list_has(&job->node);
    run->job = NULL;
    job->attempt = NULL;
    atomic_store(&job->is_abandoned, true);
    if (!is_dropped && job->call.operation == DLOCK_ACQUIRING) attempt_change_token(run->attempt);
    if (is_dropped) free_job(job);
    return is_dropped;
}

static void on_limit(loop_timer *timer) {
    custom_run *run = container_of(timer, custom_run, limit);
    char cause[DLOCK_CAUSE_SIZE];
    if (run->job == NULL) {
        end_attempt(run, DLOCK_NO_MEMORY, "no memory or thread for a call of the store");
        return;
    }
    bool is_dropped = detach(run);
    text_copy(cause, sizeof(cause), run->custom->name);
    text_append(cause, sizeof(cause),
                is_dropped ? ": no thread was free in time" : ": no answer in time");
    end_attempt(run, is_dropped ? DLOCK_UNREACHABLE : DLOCK_IN_DOUBT, cause);
}

/* -- threads */

/* The store has granted a lock that nobody waits for, or may have. */
static void undo_job(custom *custom, job *job) {
    dlock_call *call = &job->call;
    call->operation = DLOCK_RELEASING;
    call->internal = NULL; /* the release is wanted */
    call->deadline_us = 0;
    job->limit_us = deadline_after_ms(loop_now_us(custom->base.loop), custom->base.io_timeout_ms);
    bool is_undone = is_withdrawn(call_store(custom, job));
    attempt undone = {.name = job->name, .token = call->token};
    if (!is_undone) withdrawals_add(&custom->base, &undone, call->lease_ms);
}

static void run_job(custom *custom, job *job) {
    list_remove(&job->node);
    dlock_status status = call_store(custom, job);
    bool may_hold = status == DLOCK_OK || status == DLOCK_IN_DOUBT || job->is_repeated;
    if (job->attempt != NULL)
        end_by_job(job, status);
    else if (job->call.operation == DLOCK_ACQUIRING && may_hold)
        undo_job(custom, job);
    free_job(job);
}

static void *work(void *arg) {
    pool *pool = arg;
    custom *custom = pool->custom;
    loop *loop = custom->base.loop;
    loop_lock(loop);
    while (!custom->is_stopping) {
        unsigned seen = wakeup_seen(&pool->wakeup);
        list_node *node = list_first(&pool->queue);
        if (node != NULL) {
            run_job(custom, container_of(node, job, node));
            continue;
        }
        loop_unlock(loop);
        wakeup_wait(&pool->wakeup, seen, -1);
        loop_lock(loop);
    }
    loop_unlock(loop);
    return NULL;
}

/* -- the deployment */

/* Starts a thread if all are in use. True: a thread is free. */
static bool find_thread(pool *pool) {
    size_t count = pool->thread_count, max = pool_sizes[pool - pool->custom->pools];
    if (pool->job_count < count) return true;
    if (count == max || !thread_start(&pool->threads[count], work, pool)) return false;
    pool->thread_count++;
    return true;
}

/* NULL: no thread at all will take the job. */
static pool *choose_pool(custom *custom, const attempt *attempt) {
    pool *waits = &custom->pools[WAITS];
    bool is_acquire = attempt->operation == DLOCK_ACQUIRING;
    if (is_acquire && attempt->wait_until_us != 0 && find_thread(waits)) return waits;
    pool *pool = &custom->pools[is_acquire ? TRIES : CHANGES];
    return find_thread(pool) || pool->thread_count > 0 ? pool : NULL;
}

static void fill_job(job *job, attempt *attempt) {
    bool is_wait = job->pool == &job->pool->custom->pools[WAITS];
    job->attempt = attempt;
    job->limit_us = attempt->limit_us;
    job->is_repeated = attempt->fate != TOKEN_UNHELD;
    job->call = (dlock_call){.struct_size = sizeof(dlock_call),
                             .operation = attempt->operation,
                             .name = memcpy(job->name, attempt->name, strlen(attempt->name) + 1),
                             .lease_ms = attempt->lease_ms,
                             .mode = attempt->terms.mode,
                             .max_holders = attempt->terms.max_holders,
                             .deadline_us = is_wait ? attempt->wait_until_us : 0,
                             .fence = attempt->fence,
                             .internal = &job->is_abandoned};
    text_copy(job->token, sizeof(job->token), attempt->token);
    job->call.token = job->token;
    job->call.cause = text_nothing;
}

/* False: no memory or no thread. */
static bool queue_job(custom *custom, custom_run *run) {
    attempt *attempt = run->attempt;
    pool *pool = choose_pool(custom, attempt);
    job *job = pool == NULL ? NULL : calloc(1, sizeof(*job) + strlen(attempt->name) + 1);
    if (job == NULL) return false;
    job->pool = pool;
    fill_job(job, attempt);
    run->job = job;
    pool->job_count++;
    list_append(&pool->queue, &job->node);
    wakeup_signal(&pool->wakeup);
    return true;
}

static void start_job(deployment *deployment, attempt *attempt) {
    custom *custom = container_of(deployment, struct custom, base);
    custom_run *run = attempt->prepared.run;
    *run = (custom_run){.custom = custom, .attempt = attempt, .limit.on_due = on_limit};
    attempt->fences = 0;
    bool is_queued = queue_job(custom, run);
    loop_set_timer(deployment->loop, &run->limit, is_queued ? attempt->limit_us : 0);
}

static void abandon_job(deployment *deployment, attempt *attempt) {
    custom_run *run = attempt->prepared.run;
    loop_clear_timer(deployment->loop, &run->limit);
    if (run->job != NULL) detach(run);
}

static void join_threads(pool *pool) {
    for (size_t i = 0; i < pool->thread_count; i++)
        wakeup_signal(&pool->wakeup);
    for (size_t i = 0; i < pool->thread_count; i++)
        pthread_join(pool->threads[i], NULL);
}

/* The mutex is released while threads end: they need it, and the store's functions may block. */
static void free_custom(deployment *deployment) {
    custom *custom = container_of(deployment, struct custom, base);
    custom->is_stopping = true;
    loop_unlock(deployment->loop);
    for (size_t i = 0; i < POOL_COUNT; i++)
        join_threads(&custom->pools[i]);
    if (custom->store.free != NULL) custom->store.free(custom->store.arg);
    loop_lock(deployment->loop);
    free(custom);
}

static const deployment_table table = {.start = start_job,
                                       .abandon = abandon_job,
                                       .free = free_custom,
                                       .run_size = sizeof(custom_run),
                                       .guarded_error = "a store has no commands to run"};

deployment *custom_new(const dlock_backend *store, const server_options *options) {
    const char *name = store->name != NULL ? store->name : "store";
    custom *custom = calloc(1, sizeof(*custom) + strlen(name) + 1);
    if (custom == NULL) return NULL;
    deployment_init(&custom->base, &table, options);
    memcpy(custom->name, name, strlen(name) + 1);
    custom->store = *store;
    custom->store.name = custom->name;
    custom->base.can_wait = store->waits;
    custom->base.can_share = store->can_share;
    custom->command_count = options->command_count;
    for (size_t i = 0; i < POOL_COUNT; i++) {
        custom->pools[i].custom = custom;
        list_init(&custom->pools[i].queue);
    }
    return &custom->base;
}
