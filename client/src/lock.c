/* SPDX-License-Identifier: BSD-3-Clause */
/* lock.c - the handle: one claim on one name, from acquire to release.
 *
 * Invariants: depth > 0 from an acquire that succeeded to the last release; just then it is held by
 * the hold, watched if somebody wants to be told, and renewed if that is wanted. Other threads may
 * look at the hold. wake_fd is negative except while an acquire goes on. */
#include "client.h"
#include "deadline.h"
#include "options.h"
#include "text.h"
#include <stdlib.h>

struct dlock_lock {
    dlock_client *client;
    char *name;         /* with the prefix */
    char *chosen_token; /* NULL: a fresh one each time */
    uint32_t min_replicas, replica_timeout_ms;
    bool is_session;
    claim_link link; /* of a session that is not renewed just now */

    int depth;
    uint64_t fence;
    renewed *renewing; /* NULL: it is not renewed */
    watched watching;
    bool is_watched;
    int64_t extend_gone_us; /* of an extend that was sent: when it was gone before; 0: not sent */
    uint32_t extend_lease_ms;
    char token[TOKEN_MAX + 1];
    double local_ms, remote_ms;
    uint32_t attempts;
    char error[DLOCK_CAUSE_SIZE];

    /* Looked at by other threads. */
    hold held;
    atomic_bool is_canceled;
    atomic_int wake_fd;
    atomic_uint bell;

    void *slots[]; /* one for each handler */
};

static int64_t now_of(const dlock_lock *lock) {
    return lock->client->env->now_us(lock->client->env);
}

static bool is_gone(const dlock_lock *lock) {
    return hold_state(&lock->held, now_of(lock)) == DLOCK_GONE;
}

static void tell(const dlock_lock *lock, dlock_event event, dlock_status why) {
    const dlock_client *client = lock->client;
    if (client->on_event != NULL) client->on_event(client->event_arg, event, lock->name, why);
}

static dlock_status answer(dlock_lock *lock, dlock_status status, const char *error) {
    text_copy(lock->error, sizeof(lock->error), status == DLOCK_OK ? "" : error);
    return status;
}

/* A release and an extend are about the lock that is held. */
static claim claim_of(dlock_lock *lock, dlock_operation operation, int wake_fd) {
    int64_t now_us = now_of(lock);
    claim made = {.call = {.struct_size = sizeof(dlock_call),
                           .operation = operation,
                           .name = lock->name,
                           .lease_ms = lock->held.rule.lease_ms,
                           .started_us = now_us,
                           .deadline_us = now_us,
                           .fence = lock->fence,
                           .asked_us = lock->held.asked_us},
                  .stop.fd = wake_fd,
                  .min_replicas = lock->min_replicas,
                  .replica_timeout_ms = lock->replica_timeout_ms,
                  .link = lock->is_session ? &lock->link : NULL};
    text_copy(made.call.token, sizeof(made.call.token), lock->token);
    return made;
}

static dlock_status run(dlock_lock *lock, claim *of) {
    return chain_run(lock->client->handlers, of, lock->slots);
}

/* -- life */

/* What the backend cannot do is refused. */
static bool is_possible(const dlock_client *client, const dlock_lock_options *options) {
    const backend_table *table = service_backend(client->remote)->table;
    if (options->session && !table->has_sessions) return false;
    return options->min_replicas == 0 || table->has_replicas;
}

dlock_status dlock_lock_new(dlock_lock **out, dlock_client *client, const char *name,
                            const dlock_lock_options *given) {
    *out = NULL;
    dlock_lock_options options;
    if (client == NULL || name == NULL || name[0] == '\0') return DLOCK_INVALID;
    if (options_read_lock(&options, given) != NULL) return DLOCK_INVALID;
    if (!is_possible(client, &options)) return DLOCK_INVALID;

    size_t slots = chain_length(client->handlers);
    dlock_lock *made = calloc(1, sizeof(*made) + slots * sizeof(made->slots[0]));
    if (made == NULL) return DLOCK_NO_MEMORY;
    made->client = client;
    made->is_session = options.session;
    made->min_replicas = options.min_replicas;
    made->replica_timeout_ms =
        options.replica_timeout_ms != 0 ? options.replica_timeout_ms : client->limits.io_timeout_ms;
    hold_init(&made->held, &(hold_rule){.lease_ms = options.lease_ms,
                                        .renew_every_ms = options.renew_every_ms,
                                        .max_hold_ms = options.max_hold_ms,
                                        .io_timeout_ms = client->limits.io_timeout_ms});
    atomic_init(&made->wake_fd, -1);
    made->name = client_full_name(client, name);
    if (options.token != NULL) made->chosen_token = strdup(options.token);
    if (made->name == NULL || (options.token != NULL && made->chosen_token == NULL)) {
        dlock_lock_free(made);
        return DLOCK_NO_MEMORY;
    }
    if (client->watcher != NULL) {
        if (watch_reserve(client->watcher) != DLOCK_OK) {
            dlock_lock_free(made);
            return DLOCK_NO_MEMORY;
        }
        made->watching = (watched){.of = &made->held, .name = made->name};
        hold_set_lead(&made->held);
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
    if (lock->link.conn != NULL) {
        backend *behind = service_backend(lock->client->remote);
        behind->table->hang_up(&lock->link);
    }
    if (lock->watching.of != NULL) watch_unreserve(lock->client->watcher);
    hold_free(&lock->held);
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

/* It is gone sooner than the watch thinks. */
static void on_sooner(void *arg) {
    dlock_lock *lock = arg;
    if (lock->watching.of != NULL) watch_look(lock->client->watcher, &lock->watching);
}

static void begin_hold(dlock_lock *lock, const claim *granted) {
    const dlock_call *call = &granted->call;
    lock->depth = 1;
    lock->fence = call->fence;
    text_copy(lock->token, sizeof(lock->token), call->token); /* maybe a handler chose it */
    hold_begin(&lock->held, call->asked_us, call->lease_ms, lock->chosen_token == NULL);
    if (lock->renewing != NULL)
        renewal_begin(lock->client->renewals, lock->renewing, &lock->held, granted, on_sooner,
                      lock);
    /* Before anything else is told. Whoever is told may do anything with it. */
    tell(lock, DLOCK_EVENT_ACQUIRED, DLOCK_OK);
    if (lock->watching.of == NULL || lock->depth == 0 || lock->is_watched) return;
    watch_add(lock->client->watcher, &lock->watching);
    lock->is_watched = true;
}

/* It will be renewed, or its session kept, in the background. False: no memory or thread for it. */
static bool prepare_renewal(dlock_lock *lock) {
    if (lock->held.rule.renew_every_ms == 0 && !lock->is_session) return true;
    lock->renewing = renewal_prepare(lock->client->renewals, lock->name);
    return lock->renewing != NULL;
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
    if (status == DLOCK_OK) {
        begin_hold(lock, &of);
    } else if (lock->renewing != NULL) {
        renewal_drop(lock->client->renewals, lock->renewing);
        lock->renewing = NULL;
    }
    const char *cause = of.call.cause[0] != '\0' ? of.call.cause : dlock_status_text(status);
    return answer(lock, status, cause);
}

dlock_status dlock_acquire(dlock_lock *lock, int64_t wait_ms) {
    if (lock == NULL) return DLOCK_INVALID;
    if (wait_ms < DLOCK_WAIT_FOREVER) return answer(lock, DLOCK_INVALID, "wait_ms is negative");
    if (lock->depth > 0) {
        if (is_gone(lock)) return answer(lock, DLOCK_LOST, "the lease has ended meanwhile");
        lock->depth++;
        return answer(lock, DLOCK_OK, "");
    }
    if (!choose_token(lock)) return answer(lock, DLOCK_NO_MEMORY, "no random bytes for a token");
    int wake_fd = interrupt_stock_take(lock->client->wakers);
    if (wake_fd < 0) return answer(lock, DLOCK_NO_MEMORY, "no descriptor for an eventfd");
    if (!prepare_renewal(lock)) {
        interrupt_stock_give(lock->client->wakers, wake_fd);
        return answer(lock, DLOCK_NO_MEMORY, "no memory or thread to renew it");
    }
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

static void lose(dlock_lock *lock) {
    client_count(lock->client, COUNT_LOST);
    hold_lose(&lock->held, DLOCK_LOST);
    on_sooner(lock);
}

/* It may be shorter from now on. */
static void on_extend_sent(void *arg) {
    dlock_lock *lock = arg;
    if (lock->extend_gone_us != 0) return; /* several servers are asked */
    lock->extend_gone_us = hold_doubt(&lock->held, now_of(lock), lock->extend_lease_ms);
    on_sooner(lock);
}

/* What came of it. */
static dlock_status settle_extend(dlock_lock *lock, const dlock_call *call, dlock_status status) {
    bool was_sent = lock->extend_gone_us != 0;
    bool did_nothing = status == DLOCK_REFUSED || status == DLOCK_INVALID;
    if (status == DLOCK_LOST) {
        lose(lock);
    } else if (status == DLOCK_OK) {
        bool is_held = hold_extend(&lock->held, call->asked_us, call->lease_ms, now_of(lock));
        on_sooner(lock);
        if (is_held) return answer(lock, DLOCK_OK, "");
        lose(lock);
        return answer(lock, DLOCK_LOST, "it had ended before it was extended");
    } else if (was_sent && did_nothing) {
        hold_restore(&lock->held, lock->extend_gone_us, now_of(lock));
    } else if (was_sent) {
        hold_note_doubt(&lock->held, call->lease_ms);
    }
    return answer(lock, status, call->cause);
}

static dlock_status extend_held(dlock_lock *lock, claim *of) {
    lock->extend_gone_us = 0;
    lock->extend_lease_ms = of->call.lease_ms;
    of->on_sent = on_extend_sent;
    of->on_sent_arg = lock;
    return settle_extend(lock, &of->call, run(lock, of));
}

dlock_status dlock_extend(dlock_lock *lock, uint32_t lease_ms) {
    if (lock == NULL) return DLOCK_INVALID;
    if (lock->depth == 0) return answer(lock, DLOCK_NOT_HELD, "it is not held");
    if (lease_ms != 0 && lease_ms < OPTIONS_LEASE_MIN_MS)
        return answer(lock, DLOCK_INVALID, "lease_ms is less than 10");
    dlock_client *client = lock->client;
    int wake_fd = interrupt_stock_take(client->wakers);
    if (wake_fd < 0) return answer(lock, DLOCK_NO_MEMORY, "no descriptor for an eventfd");
    if (lock->renewing != NULL) renewal_pause(client->renewals, lock->renewing);
    dlock_status status;
    if (is_gone(lock)) {
        status = answer(lock, DLOCK_LOST, "the lease has ended meanwhile");
    } else {
        claim of = claim_of(lock, DLOCK_EXTENDING, wake_fd);
        if (lease_ms != 0) of.call.lease_ms = lease_ms;
        status = extend_held(lock, &of);
    }
    if (lock->renewing != NULL) renewal_resume(client->renewals, lock->renewing);
    interrupt_stock_give(client->wakers, wake_fd);
    return status;
}

/* From now on nobody touches the handle but its owner. True: nothing under way, or unanswered, can
 * change the lease any more. */
static bool end_hold(dlock_lock *lock) {
    bool is_certain = !is_gone(lock) && lock->held.doubtful_ms == 0;
    renewal *renewals = lock->client->renewals;
    if (lock->renewing != NULL) {
        /* The same token may be used again at once: what is under way would be about that, too. */
        if (lock->chosen_token != NULL) renewal_pause(renewals, lock->renewing);
        is_certain = renewal_end(renewals, lock->renewing, &lock->link) && is_certain;
    }
    lock->renewing = NULL;
    if (lock->is_watched) watch_remove(lock->client->watcher, &lock->watching);
    lock->is_watched = false;
    hold_end(&lock->held); /* others who look must not rely on it any more */
    return is_certain;
}

static dlock_status release_last(dlock_lock *lock) {
    dlock_client *client = lock->client;
    bool is_certain = end_hold(lock);
    claim of = claim_of(lock, DLOCK_RELEASING, interrupt_stock_take(client->wakers));
    of.is_doubtful = !is_certain;
    of.call.lease_ms = lock->held.lease_ms;
    of.is_token_chosen = lock->chosen_token != NULL;
    dlock_status status = run(lock, &of); /* without an eventfd too: only a full pool needs it */
    interrupt_stock_give(client->wakers, of.stop.fd);
    client_count(client, status == DLOCK_OK     ? COUNT_RELEASED
                         : status == DLOCK_LOST ? COUNT_LOST
                                                : COUNT_FAILURES);
    lock->depth = 0;
    lock->fence = 0;
    tell(lock, DLOCK_EVENT_RELEASED, status);
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
    return hold_state(&lock->held, now_of(lock));
}

int64_t dlock_remaining_ms(const dlock_lock *lock) {
    return hold_left_us(&lock->held, now_of(lock)) / 1000;
}

int dlock_lost_fd(dlock_lock *lock) {
    return hold_lost_fd(&lock->held);
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
