/* SPDX-License-Identifier: BSD-3-Clause */
/* lock.c - the handle: one claim on one name, from acquire to release.
 *
 * Invariants: depth > 0 from an acquire that succeeded to the last release. valid_until_us is not 0
 * just then; other threads may look at it. wake_fd is negative except while an acquire goes on. */
#include "client.h"
#include "deadline.h"
#include "options.h"
#include "text.h"
#include "validity.h"
#include <stdlib.h>

struct dlock_lock {
    dlock_client *client;
    char *name;         /* with the prefix */
    char *chosen_token; /* NULL: a fresh one each time */
    uint32_t lease_ms;

    int depth;
    uint32_t held_lease_ms; /* of the grant, or of the last extend */
    uint64_t fence;
    int64_t asked_us; /* the lease is counted from here */
    char token[TOKEN_MAX + 1];
    double local_ms, remote_ms;
    uint32_t attempts;
    char error[DLOCK_CAUSE_SIZE];

    /* Looked at by other threads. */
    atomic_int_least64_t valid_until_us;
    atomic_bool is_canceled;
    atomic_int wake_fd;
    atomic_uint bell;

    void *slots[]; /* one for each handler */
};

static int64_t now_of(const dlock_lock *lock) {
    return lock->client->env->now_us(lock->client->env);
}

static bool is_valid(const dlock_lock *lock) {
    return now_of(lock) < atomic_load(&lock->valid_until_us);
}

static dlock_status answer(dlock_lock *lock, dlock_status status, const char *error) {
    text_copy(lock->error, sizeof(lock->error), status == DLOCK_OK ? "" : error);
    return status;
}

/* A release and an extend are about the lock that is held. */
static claim claim_of(const dlock_lock *lock, dlock_operation operation, int wake_fd) {
    int64_t now_us = now_of(lock);
    claim made = {.call = {.struct_size = sizeof(dlock_call),
                           .operation = operation,
                           .name = lock->name,
                           .lease_ms = lock->lease_ms,
                           .started_us = now_us,
                           .deadline_us = now_us,
                           .fence = lock->fence,
                           .asked_us = lock->asked_us},
                  .stop.fd = wake_fd};
    text_copy(made.call.token, sizeof(made.call.token), lock->token);
    return made;
}

static dlock_status run(dlock_lock *lock, claim *of) {
    return chain_run(lock->client->handlers, of, lock->slots);
}

/* -- life */

dlock_status dlock_lock_new(dlock_lock **out, dlock_client *client, const char *name,
                            const dlock_lock_options *given) {
    *out = NULL;
    dlock_lock_options options;
    if (client == NULL || name == NULL || name[0] == '\0') return DLOCK_INVALID;
    if (options_read_lock(&options, given) != NULL) return DLOCK_INVALID;

    size_t slots = chain_length(client->handlers);
    dlock_lock *made = calloc(1, sizeof(*made) + slots * sizeof(made->slots[0]));
    if (made == NULL) return DLOCK_NO_MEMORY;
    made->client = client;
    made->lease_ms = options.lease_ms;
    atomic_init(&made->wake_fd, -1);
    made->name = client_full_name(client, name);
    if (options.token != NULL) made->chosen_token = strdup(options.token);
    if (made->name == NULL || (options.token != NULL && made->chosen_token == NULL)) {
        dlock_lock_free(made);
        return DLOCK_NO_MEMORY;
    }
    *out = made;
    return DLOCK_OK;
}

void dlock_lock_free(dlock_lock *lock) {
    if (lock == NULL) return;
    if (lock->depth > 0) {
        lock->depth = 1;
        dlock_release(lock);
    }
    free(lock->name);
    free(lock->chosen_token);
    free(lock);
}

/* -- acquire */

static bool choose_token(dlock_lock *lock) {
    if (lock->chosen_token == NULL) return token_source_take(lock->client->tokens, lock->token);
    text_copy(lock->token, sizeof(lock->token), lock->chosen_token);
    return true;
}

static void count_acquire(dlock_client *client, dlock_status status) {
    client_count(client, status == DLOCK_OK           ? COUNT_ACQUIRED
                         : status == DLOCK_BUSY       ? COUNT_BUSY
                         : status == DLOCK_TIMEOUT    ? COUNT_TIMEOUTS
                         : status == DLOCK_QUEUE_FULL ? COUNT_QUEUE_FULL
                                                      : COUNT_FAILURES);
}

static void hold(dlock_lock *lock, const dlock_call *granted) {
    lock->depth = 1;
    lock->fence = granted->fence;
    lock->held_lease_ms = granted->lease_ms;
    lock->asked_us = granted->asked_us;
    text_copy(lock->token, sizeof(lock->token), granted->token); /* maybe a handler chose it */
    atomic_store(&lock->valid_until_us, validity_end_us(granted->asked_us, granted->lease_ms));
}

static void take_times(dlock_lock *lock, const dlock_call *call) {
    int64_t now_us = now_of(lock), first_us = call->remote_us != 0 ? call->remote_us : now_us;
    lock->local_ms = (double)(first_us - call->started_us) / 1000;
    lock->remote_ms = (double)(now_us - first_us) / 1000;
    lock->attempts = call->attempts;
}

static dlock_status acquire_with(dlock_lock *lock, int wake_fd, int64_t wait_ms) {
    claim of = claim_of(lock, DLOCK_ACQUIRING, wake_fd);
    of.call.deadline_us = deadline_after_ms(of.call.started_us, wait_ms);
    of.is_token_chosen = lock->chosen_token != NULL;
    of.stop.is_requested = &lock->is_canceled;
    of.stop.bell = &lock->bell;
    dlock_status status = run(lock, &of);
    take_times(lock, &of.call);
    count_acquire(lock->client, status);
    if (status == DLOCK_OK) hold(lock, &of.call);
    const char *cause = of.call.cause[0] != '\0' ? of.call.cause : dlock_status_text(status);
    return answer(lock, status, cause);
}

dlock_status dlock_acquire(dlock_lock *lock, int64_t wait_ms) {
    if (lock == NULL) return DLOCK_INVALID;
    if (wait_ms < DLOCK_WAIT_FOREVER) return answer(lock, DLOCK_INVALID, "wait_ms is negative");
    if (lock->depth > 0) {
        if (!is_valid(lock)) return answer(lock, DLOCK_LOST, "the lease has ended meanwhile");
        lock->depth++;
        return answer(lock, DLOCK_OK, "");
    }
    if (!choose_token(lock)) return answer(lock, DLOCK_NO_MEMORY, "no random bytes for a token");
    int wake_fd = interrupt_stock_take(lock->client->wakers);
    if (wake_fd < 0) return answer(lock, DLOCK_NO_MEMORY, "no descriptor for an eventfd");
    atomic_store(&lock->wake_fd, wake_fd);
    dlock_status status = acquire_with(lock, wake_fd, wait_ms);
    atomic_store(&lock->wake_fd, -1);
    atomic_store(&lock->is_canceled, false);
    interrupt_stock_give(lock->client->wakers, wake_fd);
    return status;
}

dlock_status dlock_try_acquire(dlock_lock *lock) {
    return dlock_acquire(lock, DLOCK_NO_WAIT);
}

void dlock_cancel(dlock_lock *lock) {
    atomic_store(&lock->is_canceled, true);
    int wake_fd = atomic_load(&lock->wake_fd);
    if (wake_fd >= 0) interrupt_wake(wake_fd);
    interrupt_raise_bell(&lock->bell);
    interrupt_ring_bell(&lock->bell);
}

/* -- extend and release */

dlock_status dlock_extend(dlock_lock *lock, uint32_t lease_ms) {
    if (lock == NULL) return DLOCK_INVALID;
    if (lock->depth == 0) return answer(lock, DLOCK_NOT_HELD, "it is not held");
    if (lease_ms != 0 && lease_ms < OPTIONS_LEASE_MIN_MS)
        return answer(lock, DLOCK_INVALID, "lease_ms is less than 10");
    dlock_client *client = lock->client;
    claim of = claim_of(lock, DLOCK_EXTENDING, interrupt_stock_take(client->wakers));
    if (lease_ms != 0) of.call.lease_ms = lease_ms;
    if (of.stop.fd < 0) return answer(lock, DLOCK_NO_MEMORY, "no descriptor for an eventfd");
    /* While it is under way, and if it is not known what came of it, it may be shorter by now. */
    int64_t until_us = atomic_load(&lock->valid_until_us);
    int64_t end_us = validity_end_us(of.call.started_us, of.call.lease_ms);
    atomic_store(&lock->valid_until_us, deadline_earlier(until_us, end_us));
    dlock_status status = run(lock, &of);
    interrupt_stock_give(client->wakers, of.stop.fd);
    if (status == DLOCK_OK) {
        lock->held_lease_ms = of.call.lease_ms;
        lock->asked_us = of.call.asked_us;
        atomic_store(&lock->valid_until_us, validity_end_us(of.call.asked_us, of.call.lease_ms));
    }
    if (status == DLOCK_UNREACHABLE || status == DLOCK_REFUSED || status == DLOCK_INVALID)
        atomic_store(&lock->valid_until_us, until_us);
    if (status == DLOCK_LOST) {
        client_count(client, COUNT_LOST);
        atomic_store(&lock->valid_until_us, 1); /* over, but not given back */
    }
    return answer(lock, status, of.call.cause);
}

static void let_go(dlock_lock *lock) {
    lock->depth = 0;
    lock->fence = 0;
    atomic_store(&lock->valid_until_us, 0);
}

static dlock_status release_last(dlock_lock *lock) {
    dlock_client *client = lock->client;
    claim of = claim_of(lock, DLOCK_RELEASING, interrupt_stock_take(client->wakers));
    of.call.lease_ms = lock->held_lease_ms;
    of.is_token_chosen = lock->chosen_token != NULL;
    atomic_store(&lock->valid_until_us, 1); /* others who look must not rely on it any more */
    dlock_status status = run(lock, &of);   /* without an eventfd too: only a full pool needs it */
    interrupt_stock_give(client->wakers, of.stop.fd);
    client_count(client, status == DLOCK_OK     ? COUNT_RELEASED
                         : status == DLOCK_LOST ? COUNT_LOST
                                                : COUNT_FAILURES);
    let_go(lock);
    return answer(lock, status, of.call.cause);
}

dlock_status dlock_release(dlock_lock *lock) {
    if (lock == NULL) return DLOCK_INVALID;
    if (lock->depth == 0) return answer(lock, DLOCK_NOT_HELD, "it is not held");
    if (lock->depth == 1) return release_last(lock);
    lock->depth--;
    return answer(lock, DLOCK_OK, "");
}

/* -- questions */

dlock_state dlock_get_state(const dlock_lock *lock) {
    int64_t valid_until_us = atomic_load(&lock->valid_until_us);
    if (valid_until_us == 0) return DLOCK_FREE;
    return now_of(lock) < valid_until_us ? DLOCK_HELD : DLOCK_GONE;
}

int64_t dlock_remaining_ms(const dlock_lock *lock) {
    return deadline_left_us(atomic_load(&lock->valid_until_us), now_of(lock)) / 1000;
}

uint64_t dlock_fence(const dlock_lock *lock) {
    return lock->fence;
}

const char *dlock_token(const dlock_lock *lock) {
    return lock->token;
}

void dlock_get_timings(const dlock_lock *lock, dlock_timings *timings) {
    dlock_timings all = {.struct_size = timings->struct_size,
                         .local_ms = lock->local_ms,
                         .remote_ms = lock->remote_ms,
                         .attempts = lock->attempts};
    memcpy(timings, &all, all.struct_size < sizeof(all) ? all.struct_size : sizeof(all));
}

const char *dlock_last_error(const dlock_lock *lock) {
    return lock->error;
}
