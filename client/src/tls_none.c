/* SPDX-License-Identifier: BSD-3-Clause */
/* tls_none.c - see tls.h: takes the place of tls.c in a library without TLS. As there is no
 * context, nobody calls the rest. */
#include "tls.h"

#include "text.h"
#include <errno.h>

dlock_status tls_context_new(tls_context **out, const tls_files *from, char *text, size_t size) {
    (void)from;
    *out = NULL;
    text_copy(text, size, "this library was built without TLS (make TLS=yes needs libssl-dev)");
    return DLOCK_INVALID;
}

void tls_context_free(tls_context *old) {
    (void)old;
}

tls *tls_new(const tls_context *in, const char *host, int fd) {
    (void)in, (void)host, (void)fd;
    return NULL;
}

void tls_free(tls *old) {
    (void)old;
}

ssize_t tls_shake_hands(tls *with) {
    (void)with;
    errno = ENOTSUP;
    return -1;
}

ssize_t tls_read(tls *from, char *bytes, size_t size) {
    (void)bytes, (void)size;
    return tls_shake_hands(from);
}

ssize_t tls_write(tls *to, const char *bytes, size_t size) {
    (void)bytes, (void)size;
    return tls_shake_hands(to);
}

bool tls_wants_to_write(const tls *with) {
    (void)with;
    return false;
}

bool tls_has_more(const tls *from) {
    (void)from;
    return false;
}

dlock_status tls_failure(const tls *of) {
    (void)of;
    return DLOCK_INVALID;
}

const char *tls_cause(const tls *of) {
    (void)of;
    return "no TLS";
}
