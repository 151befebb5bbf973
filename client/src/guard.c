/* SPDX-License-Identifier: BSD-3-Clause */
/* guard.c - a lock that is given back on every way out. On the public API alone. */
#include "dlock.h"

dlock_scope dlock_scope_begin(dlock_client *client, const char *name, int64_t wait_ms,
                              const dlock_lock_options *options) {
    dlock_scope made = {.lock = NULL};
    made.got = dlock_lock_new(&made.lock, client, name, options);
    if (made.got == DLOCK_OK) made.got = dlock_acquire(made.lock, wait_ms);
    return made;
}

void dlock_scope_end(dlock_scope *scope) {
    dlock_lock_free(scope->lock);
    scope->lock = NULL;
}

int dlock_guard(dlock_client *client, const char *name, int64_t wait_ms,
                const dlock_lock_options *options, dlock_body body, void *arg) {
    dlock_scope held = dlock_scope_begin(client, name, wait_ms, options);
    int result = body(held.lock, held.got, arg);
    dlock_scope_end(&held);
    return result;
}
