/* SPDX-License-Identifier: BSD-3-Clause */
/* scope.c - a lock that is released on every way out; re-entrant for a thread and a name.
 *
 *   begin   the thread has a scope of the name already: one level more of that handle, without a
 *           request (with one, if a longer lease is asked for). Else a handle of its own
 *   end     one level less; the handle is freed with its last scope
 *
 * The handles of open scopes are in a table of the client, under the mutex of the loop. Threads are
 * known by a number that no later thread gets again: a thread that ends within a scope leaves the
 * handle behind, and nobody must find it.
 *
 * A nested scope shares the acquisition of the outer one. So it may ask for less than the outer one
 * has, not for more: who holds the lock shared would wait for itself to get it exclusively. */
#include "api/lock.h"
#include "api/options.h"
#include "base/text.h"

/* The open scopes of one handle. */
typedef struct scopes {
    list_node node; /* in a bucket of the client */
    dlock_lock *lock;
    uint64_t thread;
    uint32_t min_replicas; /* as in the options; renewals change that of the attempt */
    unsigned count;
    int levels; /* of these, scopes that have got the lock */
} scopes;

/* -- the table */

static list *find_bucket(dlock_client *client, const char *name) {
    return &client->scopes[(text_hash(name) + thread_number()) % CLIENT_SCOPE_BUCKETS];
}

/* The handle by which the thread holds this name (without the prefix); NULL: none. */
static dlock_lock *find_scoped(dlock_client *client, const char *name) {
    const list *bucket = find_bucket(client, name);
    size_t prefix_length = strlen(client->prefix);
    dlock_lock *found = NULL;
    loop_lock(client->loop);
    list_each(scopes, each, bucket, node) {
        /* A handle that is being released does not count: a handler may begin a scope then. */
        bool is_mine =
            each->thread == thread_number() && dlock_get_state(each->lock) != DLOCK_STATE_FREE;
        if (is_mine && strcmp(each->lock->name + prefix_length, name) == 0) found = each->lock;
    }
    loop_unlock(client->loop);
    return found;
}

/* With one scope, which gets the lock: on_event may begin a nested one before the acquire returns.
 * False: no memory. */
static bool add_scopes(dlock_lock *lock, const char *name) {
    scopes *scopes = lock->scopes = calloc(1, sizeof(*scopes));
    if (scopes == NULL) return false;
    scopes->lock = lock;
    scopes->thread = thread_number();
    scopes->min_replicas = lock->call.attempt.terms.min_replicas;
    scopes->count = 1;
    scopes->levels = 1;
    loop_lock(lock->client->loop);
    list_append(find_bucket(lock->client, name), &scopes->node);
    loop_unlock(lock->client->loop);
    return true;
}

static void remove_and_free(dlock_lock *lock) {
    scopes *scopes = lock->scopes;
    loop_lock(lock->client->loop);
    list_remove(&scopes->node);
    loop_unlock(lock->client->loop);
    dlock_lock_free(lock);
    free(scopes);
}

static dlock_status begin_first(dlock_lock **out, dlock_client *client, const char *name,
                                int64_t wait_ms, const dlock_lock_options *options) {
    dlock_status status = dlock_lock_new(out, client, name, options);
    if (status != DLOCK_OK) return status;
    if (!add_scopes(*out, name)) {
        dlock_lock_free(*out);
        *out = NULL;
        return error_set(DLOCK_NO_MEMORY, "");
    }
    status = dlock_acquire(*out, wait_ms);
    if (status != DLOCK_OK) (*out)->scopes->levels--;
    return status;
}

/* -- a nested scope */

/* NULL, or why the acquisition of the outer scope is not enough. */
static const char *find_lack(const dlock_lock *outer, const dlock_lock_options *options) {
    if (options->mode == DLOCK_EXCLUSIVE && outer->call.attempt.terms.mode == DLOCK_SHARED)
        return "mode: the thread holds the lock shared, and would wait for itself";
    if (options->session && !lock_is_session(outer))
        return "session: the thread holds the lock without one";
    if (options->min_replicas > outer->scopes->min_replicas)
        return "min_replicas: the thread holds the lock with fewer";
    return NULL;
}

static dlock_status begin_nested(dlock_lock *outer, int64_t wait_ms,
                                 const dlock_lock_options *given) {
    dlock_lock_options options;
    char text[OPTION_ERROR_SIZE];
    outer->scopes->count++;
    const char *wrong = lock_read_options(&options, outer->client, given, text);
    if (wrong == NULL) wrong = find_lack(outer, &options);
    error_set(wrong == NULL ? DLOCK_OK : DLOCK_INVALID, wrong == NULL ? "" : wrong);
    if (wrong != NULL) return lock_finish(outer, DLOCK_INVALID, wrong);
    bool is_longer = options.lease_ms > outer->lease.rule.lease_ms;
    dlock_status status = dlock_acquire_for(outer, wait_ms, is_longer ? options.lease_ms : 0);
    if (status == DLOCK_OK) outer->scopes->levels++;
    return status;
}

/* -- public */

dlock_scope dlock_scope_begin(dlock_client *client, const char *name, int64_t wait_ms,
                              const dlock_lock_options *options) {
    dlock_scope scope = {.lock = NULL};
    if (client != NULL && name != NULL) scope.lock = find_scoped(client, name);
    scope.got = scope.lock != NULL ? begin_nested(scope.lock, wait_ms, options)
                                   : begin_first(&scope.lock, client, name, wait_ms, options);
    return scope;
}

/* Levels that the program took and did not give back end with the last scope. A level that the
 * program has released is fine: the other scopes keep theirs. */
static dlock_status release_level(dlock_lock *lock) {
    bool is_lost = dlock_get_state(lock) == DLOCK_STATE_LOST;
    int others = --lock->scopes->levels;
    bool is_released = lock->depth <= others;
    if (others == 0 && lock->depth > 1) lock->depth = 1;
    dlock_status status = is_released ? DLOCK_OK : dlock_release(lock);
    return status == DLOCK_OK && is_lost ? DLOCK_LOST : status;
}

dlock_status dlock_scope_end(dlock_scope *scope) {
    if (scope == NULL) return error_set(DLOCK_INVALID, "no scope is given");
    dlock_lock *lock = scope->lock;
    if (lock == NULL) return scope->got;
    scope->lock = NULL;
    if (scope->got == DLOCK_OK) scope->got = release_level(lock);
    if (--lock->scopes->count == 0) remove_and_free(lock);
    return scope->got;
}

dlock_status dlock_scope_run(dlock_client *client, const char *name, int64_t wait_ms,
                             const dlock_lock_options *options, dlock_body body, void *arg) {
    dlock_scope scope = dlock_scope_begin(client, name, wait_ms, options);
    body(scope.lock, scope.got, arg);
    return dlock_scope_end(&scope);
}
