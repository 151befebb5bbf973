/* SPDX-License-Identifier: BSD-3-Clause */
/* tls.h - TLS over a socket that is connected and does not block. Never waits, never raises
 * SIGPIPE. tls.c is the only file that knows OpenSSL; tls_none.c stands in for it when it is built
 * without. */
#ifndef DLOCK_TLS_H
#define DLOCK_TLS_H

#include "dlock.h"
#include <sys/types.h>

typedef struct tls_context tls_context; /* whom we trust and who we are; shared by connections */
typedef struct tls tls;                 /* of one connection */

typedef struct tls_files {
    const char *ca, *cert, *key; /* each may be NULL: the machine's trust store, no certificate */
} tls_files;

/* Reads the files. DLOCK_INVALID: text says what is wrong with them. On anything but DLOCK_OK *out
 * is NULL. */
dlock_status tls_context_new(tls_context **out, const tls_files *from, char *text, size_t size);
void tls_context_free(tls_context *old);

/* host: the name or the address that the certificate must be for. The descriptor stays the
 * caller's; the context must outlive it. NULL: no memory. */
tls *tls_new(const tls_context *in, const char *host, int fd);

/* Says goodbye if that is possible at once. */
void tls_free(tls *old);

/* All three are as send(2) and recv(2) on such a socket: how much was done, for the handshake 1; 0,
 * when the server has closed the connection; else -1, and errno is EAGAIN, or there is a failure
 * and the connection cannot be used any more. What was written was given to the kernel. */
ssize_t tls_shake_hands(tls *with);
ssize_t tls_read(tls *from, char *bytes, size_t size);
ssize_t tls_write(tls *to, const char *bytes, size_t size);

/* After EAGAIN: it is to be called again when the socket can be written to. */
bool tls_wants_to_write(const tls *with);

/* There is more to read, which poll(2) does not know of. */
bool tls_has_more(const tls *from);

/* The status is that of a request that was not sent. */
dlock_status tls_failure(const tls *of);
const char *tls_cause(const tls *of);

#endif
