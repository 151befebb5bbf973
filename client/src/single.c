/* SPDX-License-Identifier: BSD-3-Clause */
/* single.c - see single.h. */
#include "single.h"

#include "batch.h"
#include "deadline.h"
#include "question.h"
#include <stdatomic.h>
#include <stdlib.h>

typedef struct single {
    backend base;
    server *at;
    const environment *env;
    atomic_uint_least64_t commands;
} single;

static uint32_t io_timeout_ms(const single *self) {
    return server_limits_of(self->at)->io_timeout_ms;
}

static void ask(single *self, exchange *x, const interrupt *stop) {
    server_ask(self->at, x, self->env, stop);
    if (x->is_sent) atomic_fetch_add(&self->commands, (uint64_t)x->request_count);
}

static dlock_status release(backend *base, claim *of, int64_t limit_us) {
    single *self = (single *)base;
    question asked;
    question_release(&asked, of, io_timeout_ms(self), limit_us);
    ask(self, &asked.x, &of->stop);
    return question_tell(&asked, of);
}

/* The lock is granted, but not safe: it is to be free again before the caller hears of that. */
static bool undo(single *self, const claim *of) {
    claim undone = *of;
    undone.stop.is_requested = NULL;
    int64_t limit_us = deadline_after_ms(self->env->now_us(self->env), io_timeout_ms(self));
    dlock_status status = release(&self->base, &undone, limit_us);
    return status == DLOCK_OK || status == DLOCK_LOST;
}

static dlock_status acquire(backend *base, claim *of, uint32_t wait_ms, int64_t limit_us) {
    single *self = (single *)base;
    question asked;
    bool was_sent_before = of->is_sent;
    question_acquire(&asked, of, wait_ms, io_timeout_ms(self), limit_us);
    ask(self, &asked.x, &of->stop);
    dlock_status status = question_tell(&asked, of);
    if (status == DLOCK_NO_REPLICAS && undo(self, of)) of->is_sent = was_sent_before;
    return status;
}

static dlock_status extend(backend *base, claim *of, int64_t limit_us) {
    single *self = (single *)base;
    question asked;
    question_extend(&asked, of, io_timeout_ms(self), limit_us);
    ask(self, &asked.x, &of->stop);
    return question_tell(&asked, of);
}

static void extend_all(backend *base, claim *const claims[], dlock_status outcomes[], size_t count,
                       const interrupt *stop, int64_t limit_us) {
    single *self = (single *)base;
    batch *asked = batch_new(claims, outcomes, count, io_timeout_ms(self), limit_us);
    if (asked == NULL) return;
    ask(self, batch_exchange(asked), stop);
    batch_read(asked);
    batch_free(asked);
}

/* A release by a stranger changes nothing, and whoever may lock may ask for it. */
static dlock_status ping(backend *base, claim *of, int64_t limit_us) {
    dlock_status status = release(base, of, limit_us);
    return status == DLOCK_LOST ? DLOCK_OK : status;
}

static dlock_status visit_servers(backend *base, claim *of, int64_t limit_us, backend_visit visit,
                                  void *arg) {
    (void)of;
    (void)limit_us;
    return visit(arg, ((single *)base)->at);
}

static uint64_t command_count(const backend *base) {
    return atomic_load(&((single *)base)->commands);
}

static void free_single(backend *base) {
    single *old = (single *)base;
    server_free(old->at);
    free(old);
}

static const backend_table table = {.acquire = acquire,
                                    .extend = extend,
                                    .extend_all = extend_all,
                                    .release = release,
                                    .ping = ping,
                                    .visit_servers = visit_servers,
                                    .hang_up = server_hang_up,
                                    .link_fd = server_link_fd,
                                    .command_count = command_count,
                                    .free = free_single,
                                    .can_wait = true,
                                    .has_sessions = true,
                                    .has_replicas = true};

backend *single_new(const url *at, const server_limits *limits, const environment *env) {
    single *made = calloc(1, sizeof(*made));
    if (made == NULL) return NULL;
    made->base.table = &table;
    made->env = env;
    made->at = server_new(at, limits);
    if (made->at == NULL) {
        free(made);
        return NULL;
    }
    return &made->base;
}
