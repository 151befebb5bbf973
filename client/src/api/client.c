/* SPDX-License-Identifier: BSD-3-Clause */
/* client.c - see client.h: the life of a client, its statistics and its hot names.
 *
 *   new    options -> files -> loop -> deployment -> renewal, notifier -> handlers -> chain
 *   free   once all locks are freed: in the opposite order, after the withdrawals have had one
 *          more I/O timeout
 *
 * A client that is half built is freed like a complete one. A store of the program's own belongs to
 * the deployment as soon as there is one; before, dlock_client_new() frees the store. */
#include "api/lock.h"
#include "api/options.h"

enum { OWN_HANDLERS = 3, SESSION_MIN_MS = 1000, SESSION_DEFAULT_MS = 10000 };

bool client_start_background(dlock_client *client) {
    loop_lock(client->loop);
    bool is_started = loop_start_background(client->loop);
    loop_unlock(client->loop);
    return is_started;
}

/* -- building */

static deployment *make_deployment(dlock_client *client, const dlock_client_options *options,
                                   const topology *topology) {
    server_options made = {.loop = client->loop,
                           .connect_timeout_ms = options->connect_timeout_ms,
                           .io_timeout_ms = options->io_timeout_ms,
                           .tls = client->tls,
                           .name = client->name[0] != '\0' ? client->name : NULL,
                           .command_count = &client->command_count,
                           .diagnostics = &client->diagnostics};
    if (options->backend != NULL) return custom_new(options->backend, &made);
    if (topology->kind == TOPOLOGY_REDLOCK) return redlock_new(topology, &made);
    if (topology->kind == TOPOLOGY_CLUSTER) return cluster_new(topology, &made);
    return master_new(topology, &made);
}

/* -- diagnostics */

static void on_line(diagnostics *diagnostics) {
    dlock_client *client = container_of(diagnostics, dlock_client, diagnostics);
    loop_start_background(client->loop); /* best effort: else a dispatch, or the end, tells */
    notifier_post(&client->notifier, &client->diagnosed);
}

static void tell_lines(notice *notice) {
    diagnostics_tell(&container_of(notice, dlock_client, diagnosed)->diagnostics);
}

static void init_diagnostics(dlock_client *client, const dlock_client_options *options) {
    diagnostics_init(&client->diagnostics, client->loop, options->diagnostic_log,
                     options->diagnostic_log_arg);
    client->diagnostics.on_line = on_line;
    client->diagnosed.tell = tell_lines;
}

/* A session needs a heartbeat every third of its timeout: a very short lease is no timeout. */
static uint32_t session_timeout_ms(uint32_t lease_ms) {
    return lease_ms >= SESSION_MIN_MS ? lease_ms : SESSION_DEFAULT_MS;
}

/* Everything that belongs to the loop. Locked. False: no memory. */
static bool build_locked(dlock_client *client, const dlock_client_options *options,
                         const topology *topology) {
    init_diagnostics(client, options);
    client->deployment = make_deployment(client, options, topology);
    if (client->deployment == NULL) return false;
    if (options->module == DLOCK_MODULE_NONE) client->deployment->protocol = &plain_protocol;
    const deployment *made = client->deployment;
    if (made->table->is_routed && made->protocol->has_module)
        client->deployment->session_ms = session_timeout_ms(client->lock_defaults.lease_ms);
    renewal_init(&client->renewal, client->deployment);
    notifier_init(&client->notifier, client->loop, options->on_event, options->event_arg);
    return true;
}

static void init_log(dlock_client *client, const dlock_client_options *options) {
    bool has_file = client->log_file != NULL;
    client->log = (access_log){.sink = has_file ? log_file_write : options->access_log,
                               .sink_arg = has_file ? client->log_file : options->access_log_arg};
}

/* NULL: no memory. */
static chain *make_chain(dlock_client *client, const dlock_client_options *options,
                         bool has_hotspot) {
    chain *chain = chain_new(OWN_HANDLERS + options->handler_count);
    for (size_t i = 0; chain != NULL && i < options->handler_count; i++) {
        dlock_handler handler;
        options_copy(&handler, sizeof(handler), options->handlers[i]);
        chain_add(chain, handler, true);
    }
    if (chain == NULL) return NULL;
    if (client->log.sink != NULL) chain_add(chain, access_log_handler(&client->log), false);
    if (has_hotspot) chain_add(chain, hotspot_handler(&client->hotspot), false);
    chain_add(chain, waiting_handler(&client->waiting), false);
    return chain;
}

static bool build_chains(dlock_client *client, const dlock_client_options *options) {
    client->hotspot = (hotspot){.deployment = client->deployment,
                                .queue_max = options->hotspot_queue_max,
                                .is_ordered = options->backend == NULL,
                                .hand_on = options->hotspot_hand_on};
    hot_names_init(&client->hotspot.names, options->hotspot_auto);
    client->waiting = (waiting){.deployment = client->deployment,
                                .is_parked = options->wait_mode != DLOCK_WAIT_SPIN,
                                .pause = {.min_ms = options->spin_min_ms,
                                          .random_ms = options->spin_random_ms,
                                          .max_ms = options->spin_max_ms}};
    client->chain = make_chain(client, options, true);
    client->cold_chain = make_chain(client, options, false);
    client->guarded_chain = chain_new(1);
    if (client->guarded_chain == NULL) return false;
    chain_add(client->guarded_chain, guarded_handler(client->deployment), false);
    return client->chain != NULL && client->cold_chain != NULL;
}

static bool copy_lock_defaults(dlock_client *client, const dlock_lock_options *defaults) {
    client->lock_defaults = *defaults;
    if (defaults->owner == NULL) return true;
    text_copy(client->name, sizeof(client->name), client->tokens.prefix);
    text_append(client->name, sizeof(client->name), defaults->owner);
    return (client->lock_defaults.owner = strdup(defaults->owner)) != NULL;
}

/* False: no memory. */
static bool build(dlock_client *client, const settings *settings) {
    const dlock_client_options *options = &settings->client;
    const topology *topology = &settings->topology;
    client->has_quorum = options->backend == NULL && topology->kind == TOPOLOGY_REDLOCK;
    client->prefix = strdup(options->prefix);
    for (size_t i = 0; i < CLIENT_SCOPE_BUCKETS; i++)
        list_init(&client->scopes[i]);
    token_source_init(&client->tokens);
    if (!copy_lock_defaults(client, &settings->lock)) return false;
    client->has_handlers = options->handler_count > 0;
    client->loop = loop_new(clock_system());
    if (client->prefix == NULL || client->loop == NULL) return false;
    if (options->no_threads) loop_forbid_threads(client->loop);
    loop_lock(client->loop);
    bool is_built = build_locked(client, options, topology);
    loop_unlock(client->loop);
    init_log(client, options);
    return is_built && build_chains(client, options);
}

static void free_store(const dlock_client_options *options) {
    if (options->backend != NULL && options->backend->free != NULL)
        options->backend->free(options->backend->arg);
}

dlock_status dlock_client_new(dlock_client **out, const dlock_client_options *given) {
    *out = NULL;
    settings settings;
    const char *wrong = options_read_client(&settings, given);
    if (wrong != NULL) return error_set(DLOCK_INVALID, wrong);

    dlock_client *client = calloc(1, sizeof(*client));
    dlock_status status = DLOCK_NO_MEMORY;
    if (client != NULL) client_share(client);
    if (client != NULL) status = options_open_files(&settings, &client->tls, &client->log_file);
    if (status == DLOCK_OK && !build(client, &settings)) status = DLOCK_NO_MEMORY;
    if (status == DLOCK_OK) {
        *out = client;
        return error_set(DLOCK_OK, "");
    }
    bool has_store = client != NULL && client->deployment != NULL;
    if (status != DLOCK_INVALID && !has_store) free_store(&settings.client);
    dlock_client_free(client);
    return error_set(status, settings.error);
}

/* -- from a text with URLs */

#define VARIABLE "DLOCK_URL"
#define BLANKS   " \t\r\n"

enum { URLS_MAX = 16 }; /* one more than a client accepts, so that dlock_client_new() says so */

/* Cuts the text at blanks. The result is the number of URLs. */
static size_t split(char *text, const char *urls[URLS_MAX]) {
    size_t count = 0;
    char *rest = NULL;
    for (char *url = strtok_r(text, BLANKS, &rest); url != NULL && count < URLS_MAX;
         url = strtok_r(NULL, BLANKS, &rest))
        urls[count++] = url;
    return count;
}

dlock_status dlock_client_new_url(dlock_client **out, const char *url) {
    *out = NULL;
    bool is_variable = url == NULL;
    if (is_variable) url = getenv(VARIABLE);
    if (url == NULL || url[strspn(url, BLANKS)] == '\0')
        return error_set(DLOCK_INVALID, is_variable ? VARIABLE " is not set" : "no URL is given");
    char *copy = strdup(url);
    if (copy == NULL) return error_set(DLOCK_NO_MEMORY, "");
    const char *urls[URLS_MAX];
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.url_count = split(copy, urls);
    options.urls = urls;
    dlock_status status = dlock_client_new(out, &options);
    free(copy);
    return status;
}

/* -- the end */

static void *end_client(void *arg) {
    dlock_client *client = arg;
    if (client->deployment != NULL) {
        loop_lock(client->loop);
        int64_t limit_us =
            deadline_after_ms(loop_now_us(client->loop), client->deployment->io_timeout_ms);
        withdrawals_finish(client->deployment);
        /* A server that has not read the last RELEASE yet may never do so once its reply to an
         * earlier command finds a closed connection. */
        loop_drain(client->loop, limit_us); /* replies are owed once their requests are sent */
        loop_unlock(client->loop);
    }
    free(client->chain);
    free(client->cold_chain);
    free(client->guarded_chain);
    log_file_free(client->log_file);
    hot_names_free(&client->hotspot.names);

    if (client->deployment != NULL) {
        loop_lock(client->loop);
        client->deployment->table->free(client->deployment);
        notifier_forget(&client->notifier, &client->diagnosed);
        diagnostics_tell(&client->diagnostics);
        loop_unlock(client->loop);
    }
    loop_free(client->loop);
    tls_context_free(client->tls);
    free(client->prefix);
    free((void *)client->lock_defaults.owner);
    free(client);
    return NULL;
}

/* The background thread cannot await its own end: another thread does so. If there is none to be
 * had, the client stays in memory, which harms nobody. */
void client_unshare(dlock_client *client) {
    if (atomic_fetch_sub(&client->shares, 1) > 1) return;
    if (loop_is_background(client->loop))
        thread_start(NULL, end_client, client);
    else
        end_client(client);
}

void dlock_client_free(dlock_client *client) {
    if (client != NULL) client_unshare(client);
}

/* -- statistics and names */

void dlock_client_get_stats(const dlock_client *client, dlock_client_stats *stats) {
    static const dlock_client nothing;
    if (client == NULL) client = &nothing;
    dlock_client_stats all = {
        .struct_size = stats->struct_size,
        .acquired = atomic_load(&client->counters.acquired),
        .busy = atomic_load(&client->counters.busy),
        .timeouts = atomic_load(&client->counters.timeouts),
        .queue_full = atomic_load(&client->counters.queue_full),
        .failures = atomic_load(&client->counters.failures),
        .released = atomic_load(&client->counters.released),
        .lost = atomic_load(&client->counters.lost),
        .renewed = client->deployment == NULL ? 0 : atomic_load(&client->deployment->renewed),
        .hand_ons = atomic_load(&client->hotspot.hand_ons),
        .commands = atomic_load(&client->command_count),
        .waiting = atomic_load(&client->hotspot.waiting),
    };
    memcpy(stats, &all, all.struct_size < sizeof(all) ? all.struct_size : sizeof(all));
}

char *client_full_name(const dlock_client *client, const char *name) {
    size_t prefix_length = strlen(client->prefix), name_size = strlen(name) + 1;
    char *full = malloc(prefix_length + name_size);
    if (full == NULL) return NULL;
    memcpy(full, client->prefix, prefix_length);
    memcpy(full + prefix_length, name, name_size);
    return full;
}

/* -- hot names */

static dlock_status set_hot(dlock_client *client, const char *name, bool is_hot) {
    if (client == NULL || name == NULL || name[0] == '\0')
        return error_set(DLOCK_INVALID, client == NULL ? NO_CLIENT : "the name is empty");
    char *full = client_full_name(client, name);
    if (full == NULL) return error_set(DLOCK_NO_MEMORY, "");
    bool is_done = true;
    loop_lock(client->loop);
    if (is_hot)
        is_done = hot_names_add(&client->hotspot.names, full);
    else
        hot_names_remove(&client->hotspot.names, full);
    loop_unlock(client->loop);
    free(full);
    return error_set(is_done ? DLOCK_OK : DLOCK_NO_MEMORY, "");
}

dlock_status dlock_hotspot_add(dlock_client *client, const char *name) {
    return set_hot(client, name, true);
}

dlock_status dlock_hotspot_remove(dlock_client *client, const char *name) {
    return set_hot(client, name, false);
}

/* A copy of both lists, to be freed: the program is told without the mutex. The texts are behind
 * the array. NULL: no memory. */
static dlock_hot_name *copy_names(dlock_client *client, size_t *count) {
    const hot_names *names = &client->hotspot.names;
    size_t prefix_length = strlen(client->prefix), size = 1;
    *count = atomic_load(&names->count);
    for (int i = 0; i < 2; i++)
        list_each(hot_name, hot, &names->lists[i], node)
            size += sizeof(dlock_hot_name) + strlen(hot->name) + 1;
    dlock_hot_name *copy = malloc(size), *entry = copy;
    if (copy == NULL) return NULL;
    char *text = (char *)(copy + *count);
    for (int i = 0; i < 2; i++)
        list_each(hot_name, hot, &names->lists[i], node) {
            *entry++ = (dlock_hot_name){.struct_size = sizeof(dlock_hot_name),
                                        .name = strcpy(text, hot->name + prefix_length),
                                        .waiting = hot->length,
                                        .is_held = hot->is_held,
                                        .is_found = hot->is_found};
            text += strlen(text) + 1;
        }
    return copy;
}

dlock_status dlock_hotspot_list(dlock_client *client, dlock_hotspot_fn tell, void *arg) {
    size_t count;
    if (client == NULL || tell == NULL)
        return error_set(DLOCK_INVALID, client == NULL ? NO_CLIENT : "no function is given");
    loop_lock(client->loop);
    dlock_hot_name *names = copy_names(client, &count);
    loop_unlock(client->loop);
    if (names == NULL) return error_set(DLOCK_NO_MEMORY, "");
    for (size_t i = 0; i < count && tell(arg, &names[i]); i++)
        continue;
    free(names);
    return DLOCK_OK;
}
