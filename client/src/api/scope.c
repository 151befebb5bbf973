/* SPDX-License-Identifier: BSD-3-Clause */
/* scope.c - a lock that is released on every way out; re-entrant for a thread and its names.
 *
 *   begin   the thread has a scope with all of the names already: one level more of that handle,
 *           without a request (with one, if a longer lease is asked for). With some of the names,
 *           but not all: refused, as the thread would wait for itself. Else a handle of its own
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
    unsigned count;
    int levels; /* of these, scopes that have got the lock */
} scopes;

/* The names that a scope asks for, without the prefix. */
typedef struct scope_names {
    const char *const *names;
    size_t count;
} scope_names;

/* -- the table */

static list *find_bucket(dlock_client *client) {
    return &client->scopes[thread_number() % CLIENT_SCOPE_BUCKETS];
}

static bool lock_has_name(const dlock_lock *lock, const char *name) {
    size_t prefix_length = strlen(lock->client->prefix);
    const char *each = lock->call.attempt.name;
    for (unsigned i = 0; i < lock->call.attempt.name_count; i++, each = text_behind(each))
        if (strcmp(each + prefix_length, name) == 0) return true;
    return false;
}

static size_t count_common(const dlock_lock *lock, const scope_names *wanted) {
    size_t count = 0;
    for (size_t i = 0; i < wanted->count; i++)
        if (wanted->names[i] != NULL && lock_has_name(lock, wanted->names[i])) count++;
    return count;
}

/* The handle by which the thread holds all of the names; NULL: none. is_partly: the thread holds
 * some of them, or all by several handles. */
static dlock_lock *find_scoped(dlock_client *client, const scope_names *wanted, bool *is_partly) {
    dlock_lock *found = NULL;
    *is_partly = false;
    loop_lock(client->loop);
    list_each(scopes, each, find_bucket(client), node) {
        /* A handle that is being released does not count: a handler may begin a scope then. */
        bool is_mine =
            each->thread == thread_number() && dlock_get_state(each->lock) != DLOCK_STATE_FREE;
        size_t common = is_mine ? count_common(each->lock, wanted) : 0;
        if (common == wanted->count)
            found = each->lock;
        else if (common > 0)
            *is_partly = true;
    }
    loop_unlock(client->loop);
    return found;
}

/* With one scope, which gets the lock: on_event may begin a nested one before the acquire returns.
 * False: no memory. */
static bool add_scopes(dlock_lock *lock) {
    scopes *scopes = lock->scopes = calloc(1, sizeof(*scopes));
    if (scopes == NULL) return false;
    scopes->lock = lock;
    scopes->thread = thread_number();
    scopes->count = 1;
    scopes->levels = 1;
    loop_lock(lock->client->loop);
    list_append(find_bucket(lock->client), &scopes->node);
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

static dlock_status begin_first(dlock_lock **out, dlock_client *client, const scope_names *wanted,
                                int64_t wait_ms, const dlock_lock_options *options) {
    dlock_status status = dlock_lock_new_all(out, client, wanted->names, wanted->count, options);
    if (status != DLOCK_OK) return status;
    if (!add_scopes(*out)) {
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
    if (options->min_replicas > outer->call.attempt.terms.min_replicas)
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
    bool is_longer = options.lease_ms > outer->call.lease.planned_ms;
    dlock_status status = dlock_acquire_for(outer, wait_ms, is_longer ? options.lease_ms : 0);
    if (status == DLOCK_OK) outer->scopes->levels++;
    return status;
}

/* -- public */

dlock_scope dlock_scope_begin(dlock_client *client, const char *name, int64_t wait_ms,
                              const dlock_lock_options *options) {
    return dlock_scope_begin_all(client, &name, 1, wait_ms, options);
}

dlock_scope dlock_scope_begin_all(dlock_client *client, const char *const *names, size_t count,
                                  int64_t wait_ms, const dlock_lock_options *options) {
    dlock_scope scope = {.lock = NULL};
    scope_names wanted = {.names = names, .count = names == NULL ? 0 : count};
    bool is_partly = false;
    if (client != NULL && wanted.count > 0) scope.lock = find_scoped(client, &wanted, &is_partly);
    if (scope.lock != NULL)
        scope.got = begin_nested(scope.lock, wait_ms, options);
    else if (is_partly)
        scope.got = error_set(DLOCK_INVALID, "names: the thread holds some of them, by an outer "
                                             "scope without the rest, and would wait for itself");
    else
        scope.got = begin_first(&scope.lock, client, &wanted, wait_ms, options);
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

static dlock_status run_body(dlock_scope scope, dlock_body body, void *arg) {
    body(scope.lock, scope.got, arg);
    return dlock_scope_end(&scope);
}

dlock_status dlock_scope_run(dlock_client *client, const char *name, int64_t wait_ms,
                             const dlock_lock_options *options, dlock_body body, void *arg) {
    return run_body(dlock_scope_begin(client, name, wait_ms, options), body, arg);
}

dlock_status dlock_scope_run_all(dlock_client *client, const char *const *names, size_t count,
                                 int64_t wait_ms, const dlock_lock_options *options,
                                 dlock_body body, void *arg) {
    return run_body(dlock_scope_begin_all(client, names, count, wait_ms, options), body, arg);
}
