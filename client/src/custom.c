/* SPDX-License-Identifier: BSD-3-Clause */
/* custom.c - see custom.h. */
#include "custom.h"

#include <stdatomic.h>
#include <stdlib.h>

typedef struct custom {
    backend base;
    dlock_backend store;
    atomic_uint_least64_t commands;
} custom;

static void read_failure(claim *of, dlock_status status) {
    of->is_passing = status == DLOCK_UNREACHABLE || status == DLOCK_IN_DOUBT;
    of->is_sent = of->is_sent || status == DLOCK_IN_DOUBT;
}

static dlock_status acquire(backend *base, claim *of, uint32_t wait_ms, int64_t limit_us) {
    (void)wait_ms; /* it cannot wait */
    custom *self = (custom *)base;
    atomic_fetch_add(&self->commands, 1);
    dlock_status status = self->store.acquire(self->store.arg, &of->call, limit_us);
    read_failure(of, status);
    return status;
}

static dlock_status extend(backend *base, claim *of, int64_t limit_us) {
    custom *self = (custom *)base;
    if (of->on_sent != NULL) of->on_sent(of->on_sent_arg);
    atomic_fetch_add(&self->commands, 1);
    return self->store.extend(self->store.arg, &of->call, limit_us);
}

static void extend_all(backend *base, claim *const claims[], dlock_status outcomes[], size_t count,
                       const interrupt *stop, int64_t limit_us) {
    (void)stop;
    for (size_t i = 0; i < count; i++) {
        outcomes[i] = extend(base, claims[i], limit_us);
        read_failure(claims[i], outcomes[i]);
    }
}

static dlock_status release(backend *base, claim *of, int64_t limit_us) {
    custom *self = (custom *)base;
    atomic_fetch_add(&self->commands, 1);
    dlock_status status = self->store.release(self->store.arg, &of->call, limit_us);
    read_failure(of, status);
    return status;
}

static dlock_status ping(backend *base, claim *of, int64_t limit_us) {
    dlock_status status = release(base, of, limit_us);
    return status == DLOCK_LOST ? DLOCK_OK : status;
}

static uint64_t command_count(const backend *base) {
    return atomic_load(&((custom *)base)->commands);
}

static void free_custom(backend *base) {
    custom *old = (custom *)base;
    if (old->store.free != NULL) old->store.free(old->store.arg);
    free(old);
}

static const backend_table table = {.acquire = acquire,
                                    .extend = extend,
                                    .extend_all = extend_all,
                                    .release = release,
                                    .ping = ping,
                                    .command_count = command_count,
                                    .free = free_custom};

backend *custom_new(const dlock_backend *store) {
    custom *made = calloc(1, sizeof(*made));
    if (made == NULL) return NULL;
    made->base.table = &table;
    made->store = *store;
    return &made->base;
}
