/* SPDX-License-Identifier: BSD-3-Clause */
/* connect.c - see connect.h. */
#include "connect.h"

#include "complain.h"

dlock_client_options connect_options(const request *asked) {
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = asked->urls;
    options.url_count = (size_t)asked->url_count;
    options.prefix = asked->prefix;
    options.connect_timeout_ms = (uint32_t)asked->connect_timeout_ms;
    options.io_timeout_ms = (uint32_t)asked->io_timeout_ms;
    options.tls_ca_file = asked->tls_ca_file;
    options.tls_cert_file = asked->tls_cert_file;
    options.tls_key_file = asked->tls_key_file;
    return options;
}

bool connect_check(const request *asked) {
    dlock_client_options options = connect_options(asked);
    char wrong[256];
    dlock_options_error(&options, wrong, sizeof(wrong));
    if (wrong[0] != '\0') complain("%s", wrong);
    return wrong[0] == '\0';
}

dlock_client *connect_client(const request *asked, int *code) {
    dlock_client *made = NULL;
    dlock_client_options options = connect_options(asked);
    *code = EXIT_CODE_USAGE;
    if (!connect_check(asked)) return NULL;
    dlock_status status = dlock_client_new(&made, &options);
    if (status != DLOCK_OK) *code = (int)complain_status("no client", status, "");
    return made;
}

dlock_status connect_acquire(dlock_lock *lock, int64_t wait_ms) {
    if (wait_ms != DLOCK_WAIT_FOREVER) return dlock_acquire(lock, wait_ms);
    dlock_status status = dlock_try_acquire(lock);
    return status == DLOCK_BUSY ? dlock_acquire(lock, wait_ms) : status;
}
