/* SPDX-License-Identifier: BSD-3-Clause */
/* options.c - see options.h.
 *
 *   copy       a struct of another version of dlock.h may be shorter, or longer with zeros behind
 *   check      options that contradict each other, or are out of range; nothing is opened
 *   URLs       topology.h reads them; TLS options need a URL with rediss://
 *   defaults   0 and NULL are replaced last */
#include "api/options.h"

#include "base/token.h"
#include "dlock_spi.h"
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

enum { DAY_MS = 24 * 3600 * 1000 };

static const char unknown_option[] =
    "struct_size is wrong, or an option is set that this version does not know";

/* False: an option is set that this version does not know. */
static bool copy_struct(void *copy, size_t copy_size, const void *given) {
    size_t given_size;
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
    if (store != NULL && store->struct_size != sizeof(*store))
        return "the backend's struct_size is not that of this version";
    if (store != NULL &&
        (store->acquire == NULL || store->extend == NULL || store->release == NULL))
        return "the backend lacks acquire, extend or release";
    if (options->handler_count > 0 && options->handlers == NULL) return "handlers is NULL";
    for (size_t i = 0; i < options->handler_count; i++) {
        const dlock_handler *handler = options->handlers[i];
        if (handler == NULL || handler->struct_size != sizeof(*handler))
            return "a handler is NULL, or its struct_size is not that of this version";
        if (handler->order >= DLOCK_ORDER_WAITING)
            return "a handler's order is not below DLOCK_ORDER_WAITING: nothing would reach it";
    }
    return NULL;
}

/* NULL, or the first TLS option that is set. */
static const char *first_tls_option(const dlock_client_options *options) {
    if (options->tls_ca_file != NULL) return "tls_ca_file";
    if (options->tls_cert_file != NULL) return "tls_cert_file";
    return options->tls_key_file != NULL ? "tls_key_file" : NULL;
}

static const char *check_client(const dlock_client_options *options) {
    bool has_url = options->urls != NULL && options->url_count > 0 && options->urls[0] != NULL;
    if (options->backend == NULL && !has_url) return "no URL is given";
    if (options->backend != NULL && has_url) return "both a URL and a backend are given";
    if (options->connect_timeout_ms > DAY_MS) return "connect_timeout_ms is more than a day";
    if (options->io_timeout_ms > DAY_MS) return "io_timeout_ms is more than a day";
    if (options->spin_min_ms > DAY_MS || options->spin_random_ms > DAY_MS ||
        options->spin_max_ms > DAY_MS)
        return "a spin pause is more than a day";
    if (options->access_log_dir != NULL && options->access_log != NULL)
        return "both access_log_dir and access_log are given";
    if (options->access_log_dir != NULL && access(options->access_log_dir, W_OK | X_OK) != 0)
        return "access_log_dir is not a folder that can be written to";
    if ((options->tls_cert_file == NULL) != (options->tls_key_file == NULL))
        return "of tls_cert_file and tls_key_file only one is given";
    if ((int)options->wait_mode < DLOCK_WAIT_AUTO || options->wait_mode > DLOCK_WAIT_SERVER)
        return "wait_mode is none of the known";
    return check_extensions(options);
}

static const char *read_urls(topology *topology, const dlock_client_options *options,
                             char text[OPTIONS_ERROR_SIZE]) {
    size_t wrong_index = 0;
    const char *error = topology_read(topology, options->urls, options->url_count, &wrong_index);
    if (error == NULL) return NULL;
    if (options->url_count == 1)
        snprintf(text, OPTIONS_ERROR_SIZE, "the URL: %s", error);
    else
        snprintf(text, OPTIONS_ERROR_SIZE, "URL %zu: %s", wrong_index + 1, error);
    return text;
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

const char *options_read_client(dlock_client_options *options, topology *topology,
                                const dlock_client_options *given, char text[OPTIONS_ERROR_SIZE]) {
    if (given == NULL) return "no options are given";
    if (!copy_struct(options, sizeof(*options), given)) return unknown_option;
    const char *error = check_client(options);
    if (error != NULL) return error;
    memset(topology, 0, sizeof(*topology));
    if (options->backend == NULL) error = read_urls(topology, options, text);
    if (error != NULL) return error;
    const char *tls_option = first_tls_option(options);
    if (tls_option != NULL && !topology_has_tls(topology)) {
        snprintf(text, OPTIONS_ERROR_SIZE, "%s is given, but no URL is rediss://", tls_option);
        return text;
    }
    set_client_defaults(options);
    return NULL;
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

const char *options_read_lock(dlock_lock_options *options, const dlock_lock_options *given) {
    dlock_lock_options none;
    dlock_lock_options_init(&none);
    if (!copy_struct(options, sizeof(*options), given == NULL ? &none : given))
        return unknown_option;
    set_default(&options->lease_ms, 10000);
    if (options->lease_ms < OPTIONS_LEASE_MIN_MS)
        return "lease_ms is less than 10: it would be over at once";
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

dlock_status options_open_tls(tls_context **context, const dlock_client_options *options,
                              const topology *topology, char text[OPTIONS_ERROR_SIZE]) {
    tls_files files = {
        .ca = options->tls_ca_file, .cert = options->tls_cert_file, .key = options->tls_key_file};
    *context = NULL;
    if (!topology_has_tls(topology)) return DLOCK_OK;
    return tls_context_new(context, &files, text, OPTIONS_ERROR_SIZE);
}

dlock_status options_open_log(log_file **file, const dlock_client_options *options,
                              char text[OPTIONS_ERROR_SIZE]) {
    *file = NULL;
    if (options->access_log_dir == NULL) return DLOCK_OK;
    *file = log_file_new(options->access_log_dir, options->access_log_keep);
    if (*file != NULL) return DLOCK_OK;
    int fault = errno;
    snprintf(text, OPTIONS_ERROR_SIZE, "access_log_dir: dlock-access.log cannot be opened: %s",
             fault == ENXIO ? "a pipe without a reader" : strerror(fault));
    bool is_lack = fault == ENOMEM || fault == EMFILE || fault == ENFILE || fault == EAGAIN;
    return is_lack ? DLOCK_NO_MEMORY : DLOCK_INVALID;
}
