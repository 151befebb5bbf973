/* SPDX-License-Identifier: BSD-3-Clause */
/* client.c - see client.h: a client's life, and what can be asked of it. */
#include "client.h"

#include "cluster.h"
#include "custom.h"
#include "deadline.h"
#include "options.h"
#include "redlock.h"
#include "sentinel.h"
#include "single.h"
#include <stdio.h>
#include <stdlib.h>

enum { OWN_HANDLERS = 3 };

#define PING_NAME "dlock:ping"

void client_count(dlock_client *of, client_counter counter) {
    atomic_fetch_add_explicit(&of->counters[counter], 1, memory_order_relaxed);
}

static waiting_rule rule_of(const dlock_client_options *options) {
    return (waiting_rule){.is_server_asked_to_wait = options->wait_mode != DLOCK_WAIT_SPIN,
                          .io_timeout_ms = options->io_timeout_ms,
                          .pause = {.min_ms = options->spin_min_ms,
                                    .random_ms = options->spin_random_ms,
                                    .max_ms = options->spin_max_ms}};
}

/* It was taken over, and nothing came of it. */
static void free_store(const dlock_client_options *options) {
    if (options->backend != NULL && options->backend->free != NULL)
        options->backend->free(options->backend->arg);
}

static backend *make_backend(const dlock_client_options *options, const deployment *where,
                             const tls_context *trust, const environment *env) {
    server_limits limits = {.connect_timeout_ms = options->connect_timeout_ms,
                            .io_timeout_ms = options->io_timeout_ms,
                            .pool_max = options->pool_max,
                            .trust = trust};
    if (options->backend != NULL) return custom_new(options->backend);
    switch (where->kind) {
    case DEPLOYMENT_SINGLE:
        return single_new(&where->servers[0], &limits, env);
    case DEPLOYMENT_REDLOCK:
        return redlock_new(where, &limits, env);
    case DEPLOYMENT_SENTINEL:
        return sentinel_new(where, &limits, env);
    case DEPLOYMENT_CLUSTER:
        return cluster_new(where, &limits, env);
    }
    return NULL;
}

static service *make_service(const dlock_client_options *options, const deployment *where,
                             const tls_context *trust, const environment *env) {
    backend *behind = make_backend(options, where, trust, env);
    waiting_rule rule = rule_of(options);
    if (behind == NULL) free_store(options);
    return behind == NULL ? NULL : service_new(behind, &rule, env);
}

static hotspot *make_hotspot(const dlock_client_options *options, const service *behind,
                             const environment *env) {
    if (behind == NULL) return NULL;
    hotspot_rule rule = {.auto_max = options->hotspot_auto,
                         .queue_max = options->hotspot_queue_max,
                         .is_queued_outside = service_has_queue(behind),
                         .hand_on = options->hotspot_hand_on};
    return hotspot_new(&rule, env);
}

/* True: *made is there, or not wanted. */
static bool make_log(const dlock_client_options *options, const environment *env,
                     access_log **made) {
    log_file *file = NULL;
    if (options->access_log_dir == NULL && options->access_log == NULL) return true;
    if (options->access_log == NULL) {
        file = log_file_new(options->access_log_dir, options->access_log_keep);
        if (file == NULL) return false;
    }
    *made = access_log_new(file, options->access_log, options->access_log_arg, env);
    return *made != NULL;
}

static chain *make_chain(const dlock_client *of, const dlock_client_options *options) {
    chain *made = chain_new(OWN_HANDLERS + options->handler_count);
    if (made == NULL) return NULL;
    for (size_t i = 0; i < options->handler_count; i++)
        chain_add(made, options->handlers[i]);
    dlock_handler local = hotspot_handler(of->local), remote = service_handler(of->remote);
    if (of->log != NULL) {
        dlock_handler log = access_log_handler(of->log);
        chain_add(made, &log);
    }
    chain_add(made, &local);
    chain_add(made, &remote);
    return made;
}

dlock_status dlock_client_new(dlock_client **out, const dlock_client_options *given) {
    *out = NULL;
    dlock_client_options options;
    deployment where;
    char text[OPTIONS_WRONG_MAX];
    tls_context *trust;
    if (options_read_client(&options, &where, given, text) != NULL) return DLOCK_INVALID;
    dlock_status status = options_open_tls(&trust, &options, &where, text);
    if (status != DLOCK_OK) return status;

    dlock_client *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        tls_context_free(trust);
        free_store(&options);
        return DLOCK_NO_MEMORY;
    }
    made->trust = trust;
    made->env = environment_system();
    made->limits = (client_limits){options.connect_timeout_ms, options.io_timeout_ms};
    made->on_event = options.on_event;
    made->event_arg = options.event_arg;
    made->tokens = token_source_new();
    made->wakers = interrupt_stock_new();
    made->prefix = strdup(options.prefix);
    made->remote = make_service(&options, &where, trust, made->env);
    made->local = make_hotspot(&options, made->remote, made->env);
    if (made->remote != NULL)
        made->renewals = renewal_new(service_backend(made->remote), options.connect_timeout_ms,
                                     options.io_timeout_ms, made->env);
    if (options.on_event != NULL)
        made->watcher = watch_new(options.on_event, options.event_arg, made->env);
    bool is_told = options.on_event == NULL || made->watcher != NULL;
    bool is_made = made->wakers != NULL && made->prefix != NULL && made->tokens != NULL &&
                   made->remote != NULL && made->local != NULL && made->renewals != NULL &&
                   is_told && make_log(&options, made->env, &made->log);
    if (is_made) made->handlers = make_chain(made, &options);
    if (made->handlers == NULL) goto fail;
    *out = made;
    return DLOCK_OK;

fail:
    dlock_client_free(made);
    return DLOCK_NO_MEMORY;
}

void dlock_options_error(const dlock_client_options *given, char *text, size_t size) {
    dlock_client_options options;
    deployment where;
    char room[OPTIONS_WRONG_MAX];
    tls_context *trust = NULL;
    const char *wrong = options_read_client(&options, &where, given, room);
    if (wrong == NULL && options_open_tls(&trust, &options, &where, room) != DLOCK_OK) wrong = room;
    tls_context_free(trust);
    if (size > 0) snprintf(text, size, "%s", wrong == NULL ? "" : wrong);
}

void dlock_client_free(dlock_client *client) {
    if (client == NULL) return;
    renewal_free(client->renewals);
    watch_free(client->watcher);
    chain_free(client->handlers);
    access_log_free(client->log);
    hotspot_free(client->local);
    service_free(client->remote);
    tls_context_free(client->trust);
    interrupt_stock_free(client->wakers);
    token_source_free(client->tokens);
    free(client->prefix);
    free(client);
}

static dlock_status ping(dlock_client *client, const char *name, int64_t timeout_ms) {
    claim of = {
        .call = {.struct_size = sizeof(dlock_call), .operation = DLOCK_RELEASING, .name = name}};
    if (!token_source_take(client->tokens, of.call.token)) return DLOCK_NO_MEMORY;
    of.stop.fd = interrupt_stock_take(client->wakers);
    if (of.stop.fd < 0) return DLOCK_NO_MEMORY;
    backend *asked = service_backend(client->remote);
    int64_t limit_us = deadline_after_ms(client->env->now_us(client->env), timeout_ms);
    dlock_status status = asked->table->ping(asked, &of, limit_us);
    interrupt_stock_give(client->wakers, of.stop.fd);
    return status == DLOCK_IN_DOUBT ? DLOCK_UNREACHABLE : status;
}

dlock_status dlock_client_ping(dlock_client *client, int64_t timeout_ms) {
    if (client == NULL || timeout_ms < 0) return DLOCK_INVALID;
    char *name = client_full_name(client, PING_NAME); /* where we may do something at all */
    if (name == NULL) return DLOCK_NO_MEMORY;
    dlock_status status = ping(client, name, timeout_ms);
    free(name);
    return status;
}

void dlock_client_get_stats(const dlock_client *client, dlock_client_stats *stats) {
    const backend *asked = service_backend(client->remote);
    dlock_client_stats all = {
        .struct_size = stats->struct_size,
        .acquired = atomic_load(&client->counters[COUNT_ACQUIRED]),
        .busy = atomic_load(&client->counters[COUNT_BUSY]),
        .timeouts = atomic_load(&client->counters[COUNT_TIMEOUTS]),
        .queue_full = atomic_load(&client->counters[COUNT_QUEUE_FULL]),
        .failures = atomic_load(&client->counters[COUNT_FAILURES]),
        .released = atomic_load(&client->counters[COUNT_RELEASED]),
        .lost = atomic_load(&client->counters[COUNT_LOST]),
        .renewed = renewal_count(client->renewals),
        .hand_ons = hotspot_hand_ons(client->local),
        .waiting = hotspot_waiting(client->local),
        .commands = asked->table->command_count(asked),
    };
    memcpy(stats, &all, all.struct_size < sizeof(all) ? all.struct_size : sizeof(all));
}

char *client_full_name(const dlock_client *of, const char *name) {
    size_t prefix_length = strlen(of->prefix), name_size = strlen(name) + 1;
    char *full = malloc(prefix_length + name_size);
    if (full == NULL) return NULL;
    memcpy(full, of->prefix, prefix_length);
    memcpy(full + prefix_length, name, name_size);
    return full;
}

dlock_status dlock_hotspot_add(dlock_client *client, const char *name) {
    if (client == NULL || name == NULL || name[0] == '\0') return DLOCK_INVALID;
    char *full = client_full_name(client, name);
    if (full == NULL) return DLOCK_NO_MEMORY;
    dlock_status status = hotspot_add(client->local, full);
    free(full);
    return status;
}

dlock_status dlock_hotspot_remove(dlock_client *client, const char *name) {
    if (client == NULL || name == NULL || name[0] == '\0') return DLOCK_INVALID;
    char *full = client_full_name(client, name);
    if (full == NULL) return DLOCK_NO_MEMORY;
    hotspot_remove(client->local, full);
    free(full);
    return DLOCK_OK;
}
