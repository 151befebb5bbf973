/* SPDX-License-Identifier: BSD-3-Clause */
/* tls_none.c - see tls.h: takes the place of tls.c in a library without TLS. As no context can be
 * made, the other functions are never called. */
#include "net/tls.h"

#include "base/text.h"
#include <errno.h>

dlock_status tls_context_new(tls_context **out, const tls_files *files, char *text, size_t size) {
    (void)files;
    *out = NULL;
    text_copy(text, size, "this library was built without TLS (make TLS=yes needs libssl-dev)");
    return DLOCK_INVALID;
}

void tls_context_free(tls_context *context) {
    (void)context;
}

bool tls_context_refresh(tls_context *context, char *text, size_t size) {
    (void)context, (void)text, (void)size;
    return false;
}

tls *tls_new(const tls_context *context, const char *host, int fd) {
    (void)context, (void)host, (void)fd;
    return NULL;
}

void tls_free(tls *tls) {
    (void)tls;
}

ssize_t tls_shake_hands(tls *tls) {
    (void)tls;
    errno = ENOTSUP;
    return -1;
}

ssize_t tls_read(tls *tls, char *bytes, size_t size) {
    (void)bytes, (void)size;
    return tls_shake_hands(tls);
}

ssize_t tls_write(tls *tls, const char *bytes, size_t size) {
    (void)bytes, (void)size;
    return tls_shake_hands(tls);
}

void tls_end_thread(void) {
}
