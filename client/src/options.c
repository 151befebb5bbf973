/* SPDX-License-Identifier: BSD-3-Clause */
/* options.c - see options.h. */
#include "options.h"

#include "dlock_spi.h"
#include "random.h"
#include <stdio.h>
#include <unistd.h>

enum { DAY_MS = 24 * 3600 * 1000, POOL_LIMIT = 65536 };

/* Copies a struct of another version of this page. False: it asks for what we do not know. */
static bool copy_struct(void *to, size_t to_size, const void *from) {
    size_t from_size;
    memcpy(&from_size, from, sizeof(from_size));
    if (from_size < sizeof(from_size)) return false;
    const char *bytes = from;
    for (size_t i = to_size; i < from_size; i++)
        if (bytes[i] != 0) return false;
    memset(to, 0, to_size);
    memcpy(to, from, from_size < to_size ? from_size : to_size);
    memcpy(to, &to_size, sizeof(to_size));
    return true;
}

static void set_default(uint32_t *option, uint32_t value) {
    if (*option == 0) *option = value;
}

/* Of both structs all functions that a caller cannot do without must be there. */
static const char *check_extensions(const dlock_client_options *o) {
    const dlock_backend *store = o->backend;
    if (store != NULL && store->struct_size != sizeof(*store))
        return "the backend's struct_size is not that of this version";
    if (store != NULL &&
        (store->acquire == NULL || store->extend == NULL || store->release == NULL))
        return "the backend lacks acquire, extend or release";
    if (o->handler_count > 0 && o->handlers == NULL) return "handlers is NULL";
    for (size_t i = 0; i < o->handler_count; i++) {
        const dlock_handler *handler = o->handlers[i];
        if (handler == NULL || handler->struct_size != sizeof(*handler))
            return "a handler is NULL, or its struct_size is not that of this version";
        if (handler->order >= DLOCK_ORDER_WAITING)
            return "a handler's order is not below DLOCK_ORDER_WAITING: nothing would reach it";
    }
    return NULL;
}

/* NULL, or the first TLS option that is given. */
static const char *tls_option_of(const dlock_client_options *o) {
    if (o->tls_ca_file != NULL) return "tls_ca_file";
    if (o->tls_cert_file != NULL) return "tls_cert_file";
    return o->tls_key_file != NULL ? "tls_key_file" : NULL;
}

static const char *check_client(const dlock_client_options *o) {
    bool has_url = o->urls != NULL && o->url_count > 0 && o->urls[0] != NULL;
    if (o->backend == NULL && !has_url) return "no URL is given";
    if (o->backend != NULL && has_url) return "both a URL and a backend are given";
    if (o->connect_timeout_ms > DAY_MS) return "connect_timeout_ms is more than a day";
    if (o->io_timeout_ms > DAY_MS) return "io_timeout_ms is more than a day";
    if (o->spin_min_ms > DAY_MS || o->spin_random_ms > DAY_MS || o->spin_max_ms > DAY_MS)
        return "a spin pause is more than a day";
    if (o->access_log_dir != NULL && o->access_log != NULL)
        return "both access_log_dir and access_log are given";
    if (o->access_log_dir != NULL && access(o->access_log_dir, W_OK | X_OK) != 0)
        return "access_log_dir is not a folder that can be written to";
    if ((o->tls_cert_file == NULL) != (o->tls_key_file == NULL))
        return "of tls_cert_file and tls_key_file only one is given";
    if (o->pool_max > POOL_LIMIT) return "pool_max is more than 65536";
    if ((int)o->wait_mode < DLOCK_WAIT_AUTO || o->wait_mode > DLOCK_WAIT_SERVER)
        return "wait_mode is none of the known";
    return check_extensions(o);
}

static const char *read_urls(const dlock_client_options *from, deployment *where,
                             char text[OPTIONS_WRONG_MAX]) {
    size_t wrong_at = 0;
    const char *wrong = deployment_read(where, from->urls, from->url_count, &wrong_at);
    if (wrong == NULL) return NULL;
    if (from->url_count == 1)
        snprintf(text, OPTIONS_WRONG_MAX, "the URL: %s", wrong);
    else
        snprintf(text, OPTIONS_WRONG_MAX, "URL %zu: %s", wrong_at + 1, wrong);
    return text;
}

const char *options_read_client(dlock_client_options *to, deployment *where,
                                const dlock_client_options *given, char text[OPTIONS_WRONG_MAX]) {
    if (given == NULL) return "no options are given";
    if (!copy_struct(to, sizeof(*to), given))
        return "struct_size is wrong, or an option is set that this version does not know";
    const char *wrong = check_client(to);
    if (wrong != NULL) return wrong;
    *where = (deployment){0};
    if (to->backend == NULL) wrong = read_urls(to, where, text);
    if (wrong != NULL) return wrong;
    const char *tls_option = tls_option_of(to);
    if (tls_option != NULL && !deployment_has_tls(where)) {
        snprintf(text, OPTIONS_WRONG_MAX, "%s is given, but no URL is rediss://", tls_option);
        return text;
    }
    if (to->prefix == NULL) to->prefix = "";
    set_default(&to->connect_timeout_ms, 1000);
    set_default(&to->io_timeout_ms, 200);
    set_default(&to->spin_min_ms, 10);
    set_default(&to->spin_random_ms, 10);
    set_default(&to->pool_max, 64);
    set_default(&to->hotspot_queue_max, 1000);
    if (to->access_log_keep == 0) to->access_log_keep = 7;
    return NULL;
}

dlock_status options_open_tls(tls_context **out, const dlock_client_options *from,
                              const deployment *where, char text[OPTIONS_WRONG_MAX]) {
    tls_files files = {
        .ca = from->tls_ca_file, .cert = from->tls_cert_file, .key = from->tls_key_file};
    *out = NULL;
    return deployment_has_tls(where) ? tls_context_new(out, &files, text, OPTIONS_WRONG_MAX)
                                     : DLOCK_OK;
}

const char *options_read_lock(dlock_lock_options *to, const dlock_lock_options *given) {
    dlock_lock_options none;
    dlock_lock_options_init(&none);
    if (!copy_struct(to, sizeof(*to), given == NULL ? &none : given))
        return "struct_size is wrong, or an option is set that this version does not know";
    set_default(&to->lease_ms, 10000);
    if (to->lease_ms < OPTIONS_LEASE_MIN_MS)
        return "lease_ms is less than 10: it would be over at once";
    if ((uint64_t)to->renew_every_ms * 10 > (uint64_t)to->lease_ms * 9)
        return "renew_every_ms is more than nine tenths of lease_ms";
    if (to->token != NULL && (to->token[0] == '\0' || strlen(to->token) > TOKEN_MAX))
        return "the token is not 1 to 256 bytes long";
    return NULL;
}
