/* SPDX-License-Identifier: BSD-3-Clause */
/* guard.c - a lock that is given back on every way out. Uses the public API alone. */
#include "dlock.h"

dlock_scope dlock_scope_begin(dlock_client *client, const char *name, int64_t wait_ms,
                              const dlock_lock_options *options) {
    dlock_scope scope = {.lock = NULL};
    scope.got = dlock_lock_new(&scope.lock, client, name, options);
    if (scope.got == DLOCK_OK) scope.got = dlock_acquire(scope.lock, wait_ms);
    return scope;
}

void dlock_scope_end(dlock_scope *scope) {
    dlock_lock_free(scope->lock);
    scope->lock = NULL;
}

int dlock_guard(dlock_client *client, const char *name, int64_t wait_ms,
                const dlock_lock_options *options, dlock_body body, void *arg) {
    dlock_scope scope = dlock_scope_begin(client, name, wait_ms, options);
    int result = body(scope.lock, scope.got, arg);
    dlock_scope_end(&scope);
    return result;
}
