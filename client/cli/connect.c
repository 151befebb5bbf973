/* SPDX-License-Identifier: BSD-3-Clause */
/* connect.c - see connect.h. */
#include "connect.h"

#include "complain.h"
#include "duration.h"

dlock_client_options connect_options(const request *request) {
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = request->urls;
    options.url_count = (size_t)request->url_count;
    options.prefix = request->prefix;
    options.connect_timeout_ms = (uint32_t)request->connect_timeout_ms;
    options.io_timeout_ms = (uint32_t)request->io_timeout_ms;
    options.tls_ca_file = request->tls_ca_file;
    options.tls_cert_file = request->tls_cert_file;
    options.tls_key_file = request->tls_key_file;
    return options;
}

dlock_lock_options connect_lock_options(const request *request) {
    dlock_lock_options options;
    dlock_lock_options_init(&options);
    options.lease_ms = (uint32_t)request->lease_ms;
    options.min_replicas = (uint32_t)request->min_replicas;
    if (request->is_shared || request->slots > 0) options.mode = DLOCK_SHARED;
    if (request->slots > 0) options.max_holders = (uint32_t)request->slots;
    return options;
}

bool connect_check(const request *request) {
    int code;
    dlock_client *client = connect_client(request, &code);
    dlock_client_free(client);
    return client != NULL;
}

dlock_client *connect_client(const request *request, int *code) {
    dlock_client *made = NULL;
    dlock_client_options options = connect_options(request);
    dlock_status status = dlock_client_new(&made, &options);
    *code = exit_code_of(status);
    if (status != DLOCK_OK) complain("%s", dlock_error());
    return made;
}

int connect_explain(const request *request, const char *name, dlock_status status,
                    const char *text) {
    char waited[DURATION_SIZE];
    const char *holder = text[0] != '\0' ? text : "another holds the lock";
    duration_show(request->wait_ms, waited);
    if (status == DLOCK_TIMEOUT && !request->is_quiet)
        complain("%s: gave up after %s: %s", name, waited, holder);
    else if (status == DLOCK_BUSY && request->is_verbose)
        complain("%s: %s", name, holder);
    if (status == DLOCK_TIMEOUT || status == DLOCK_BUSY) return (int)request->busy_code;
    return (int)complain_status(request, name, status, text);
}
