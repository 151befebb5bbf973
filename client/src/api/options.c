/* SPDX-License-Identifier: BSD-3-Clause */
/* options.c - see options.h.
 *
 *   copy       a struct of another version of dlock.h may be shorter, or longer with zeros behind
 *   URLs       topology.h reads them; their parameters are options too (option_table.c)
 *   check      options out of range, or that contradict each other; nothing is opened
 *   defaults   0 and NULL are replaced last */
#include "api/options.h"

#include "base/token.h"
#include "dlock_spi.h"
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static const char unknown_option[] =
    "struct_size is wrong, or an option is set that this version does not know";

bool options_copy(void *copy, size_t copy_size, const void *given) {
    size_t given_size, least_size = sizeof(given_size);
    if (given == NULL) given = &least_size;
    memcpy(&given_size, given, sizeof(given_size));
    if (given_size < sizeof(given_size)) return false;
    const char *bytes = given;
    for (size_t i = copy_size; i < given_size; i++)
        if (bytes[i] != 0) return false;
    memset(copy, 0, copy_size);
    memcpy(copy, given, given_size < copy_size ? given_size : copy_size);
    memcpy(copy, &copy_size, sizeof(copy_size));
    return true;
}

static void set_default(uint32_t *option, uint32_t value) {
    if (*option == 0) *option = value;
}

static const char *check_extensions(const dlock_client_options *options) {
    const dlock_backend *store = options->backend;
    if (store != NULL &&
        (store->acquire == NULL || store->extend == NULL || store->release == NULL))
        return "the backend lacks acquire, extend or release";
    if (store != NULL && options->no_threads)
        return "no_threads: a store needs threads, since its functions may block";
    if (options->no_threads && options->access_log_dir != NULL)
        return "no_threads: access_log_dir needs a thread that writes; use access_log";
    if (options->handler_count > 0 && options->handlers == NULL) return "handlers is NULL";
    for (size_t i = 0; i < options->handler_count; i++) {
        dlock_handler handler;
        if (options->handlers[i] == NULL) return "a handler is NULL";
        if (!options_copy(&handler, sizeof(handler), options->handlers[i]))
            return "a handler's struct_size is wrong, or it has more than this version knows";
        if (handler.order >= DLOCK_ORDER_WAITING)
            return "a handler's order is not below DLOCK_ORDER_WAITING: nothing would reach it";
    }
    return NULL;
}

static const char *check_client(const dlock_client_options *options) {
    bool is_plain = options->module == DLOCK_MODULE_NONE;
    if (options->spin_max_ms != 0 && options->spin_max_ms < options->spin_min_ms)
        return "spin_max_ms is less than spin_min_ms";
    if (options->access_log_dir != NULL && options->access_log != NULL)
        return "both access_log_dir and access_log are given";
    if (options->access_log_dir != NULL && access(options->access_log_dir, W_OK | X_OK) != 0)
        return "access_log_dir is not a folder that can be written to";
    if ((options->tls_cert_file == NULL) != (options->tls_key_file == NULL))
        return "of tls_cert_file and tls_key_file only one is given";
    if (is_plain && options->backend != NULL) return "module is none, but a backend is given";
    if (is_plain && options->wait_mode == DLOCK_WAIT_SERVER)
        return "wait_mode is server, but module is none: without the module no server has a queue";
    return check_extensions(options);
}

static const char *read_urls(settings *settings) {
    const dlock_client_options *options = &settings->client;
    const url_taker taker = {url_options_take, &settings->url};
    bool has_url = options->urls != NULL && options->url_count > 0 && options->urls[0] != NULL;
    size_t wrong_index = 0;
    if (options->backend == NULL && !has_url) return "no URL is given";
    if (options->backend != NULL) return has_url ? "both a URL and a backend are given" : NULL;
    const char *error =
        topology_read(&settings->topology, options->urls, options->url_count, &taker, &wrong_index);
    if (error == NULL) return NULL;
    if (options->url_count == 1)
        snprintf(settings->error, sizeof(settings->error), "the URL: %s", error);
    else
        snprintf(settings->error, sizeof(settings->error), "URL %zu: %s", wrong_index + 1, error);
    return settings->error;
}

static bool is_contradictory(const dlock_lock_options *options) {
    return options->renew == DLOCK_NO && options->renew_every_ms > 0;
}

/* Two options are about renewal: the one that is given goes before the default of the other. */
static const char *fill_lock(dlock_lock_options *options, const dlock_lock_options *defaults) {
    if (is_contradictory(options) || is_contradictory(defaults))
        return "renew is no, but renew_every_ms is given";
    if (options->renew_every_ms > 0) options->renew = DLOCK_YES;
    options_fill(options, defaults, true);
    if (options->renew == DLOCK_NO) options->renew_every_ms = 0;
    return NULL;
}

/* A lock must not become shared by a default that is far from its code. */
static const char *read_lock_defaults(settings *settings) {
    if (!options_copy(&settings->lock, sizeof(settings->lock), settings->client.lock_defaults))
        return unknown_option;
    if (settings->lock.mode != DLOCK_EXCLUSIVE || settings->lock.max_holders != 0)
        return "lock_defaults: mode and max_holders are options of a single lock";
    const char *error = fill_lock(&settings->lock, &settings->url.lock);
    dlock_lock_options complete;
    return error != NULL ? error
                         : options_read_lock(&complete, NULL, &settings->lock, settings->error);
}

static void set_client_defaults(dlock_client_options *options) {
    if (options->prefix == NULL) options->prefix = "";
    set_default(&options->connect_timeout_ms, 1000);
    set_default(&options->io_timeout_ms, 200);
    set_default(&options->spin_min_ms, 10);
    set_default(&options->spin_random_ms, 10);
    set_default(&options->hotspot_queue_max, 1000);
    if (options->access_log_keep == 0) options->access_log_keep = 7;
}

static const char *check_tls(settings *settings) {
    const char *ca_file = settings->client.tls_ca_file, *cert_file = settings->client.tls_cert_file;
    bool is_given = ca_file != NULL || cert_file != NULL; /* a key comes with its certificate */
    if (!is_given || topology_has_tls(&settings->topology)) return NULL;
    snprintf(settings->error, sizeof(settings->error), "%s is given, but no URL is rediss://",
             ca_file != NULL ? "tls_ca_file" : "tls_cert_file");
    return settings->error;
}

const char *options_read_client(settings *settings, const dlock_client_options *given) {
    dlock_client_options *options = &settings->client;
    memset(settings, 0, sizeof(*settings));
    if (given == NULL) return "no options are given";
    if (!options_copy(options, sizeof(*options), given)) return unknown_option;
    if (options->backend != NULL) {
        if (!options_copy(&settings->backend, sizeof(settings->backend), options->backend))
            return "the backend's struct_size is wrong, or it has more than this version knows";
        options->backend = &settings->backend;
    }
    const char *error = options_check(options, false, settings->error);
    if (error == NULL) error = read_urls(settings);
    if (error == NULL) options_fill(options, &settings->url.client, false);
    if (error == NULL) error = check_client(options);
    if (error == NULL) error = check_tls(settings);
    if (error == NULL) error = read_lock_defaults(settings);
    set_client_defaults(options);
    return error;
}

/* A label inside a token: the colon separates the parts of a token, and a token is one word of a
 * log line. */
static bool is_good_owner(const char *owner) {
    size_t length = strlen(owner);
    if (length == 0 || length > TOKEN_OWNER_MAX) return false;
    for (const char *c = owner; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~' || *c == ':') return false;
    return true;
}

const char *options_read_lock(dlock_lock_options *options, const dlock_lock_options *given,
                              const dlock_lock_options *defaults, char text[OPTION_ERROR_SIZE]) {
    if (!options_copy(options, sizeof(*options), given)) return unknown_option;
    const char *error = fill_lock(options, defaults);
    if (error == NULL) error = options_check(options, true, text);
    if (error != NULL) return error;
    set_default(&options->lease_ms, 10000);
    if (options->session == DLOCK_NO) options->session = DLOCK_DEFAULT;
    if (options->renew == DLOCK_YES) set_default(&options->renew_every_ms, options->lease_ms / 3);
    if ((uint64_t)options->renew_every_ms * 10 > (uint64_t)options->lease_ms * 9)
        return "renew_every_ms is more than nine tenths of lease_ms";
    if (options->mode != DLOCK_EXCLUSIVE && options->mode != DLOCK_SHARED)
        return "mode is none of the known";
    if (options->max_holders > 0 && options->mode != DLOCK_SHARED)
        return "max_holders is given, but mode is not DLOCK_SHARED";
    if (options->max_holders > INT32_MAX) return "max_holders is more than 2147483647";
    if (options->owner != NULL && !is_good_owner(options->owner))
        return "the owner is not 1 to 64 printable ASCII characters without blanks and colons";
    return NULL;
}

static dlock_status open_log(settings *settings, log_file **file) {
    const dlock_client_options *options = &settings->client;
    if (options->access_log_dir == NULL) return DLOCK_OK;
    *file = log_file_new(options->access_log_dir, options->access_log_keep);
    if (*file != NULL) return DLOCK_OK;
    int fault = errno;
    snprintf(settings->error, sizeof(settings->error),
             "access_log_dir: dlock-access.log cannot be opened: %s",
             fault == ENXIO ? "a pipe without a reader" : strerror(fault));
    bool is_lack = fault == ENOMEM || fault == EMFILE || fault == ENFILE || fault == EAGAIN;
    return is_lack ? DLOCK_NO_MEMORY : DLOCK_INVALID;
}

dlock_status options_open_files(settings *settings, tls_context **context, log_file **file) {
    const dlock_client_options *options = &settings->client;
    tls_files files = {
        .ca = options->tls_ca_file, .cert = options->tls_cert_file, .key = options->tls_key_file};
    dlock_status status = DLOCK_OK;
    *context = NULL;
    *file = NULL;
    if (topology_has_tls(&settings->topology))
        status = tls_context_new(context, &files, settings->error, sizeof(settings->error));
    return status == DLOCK_OK ? open_log(settings, file) : status;
}
