/* SPDX-License-Identifier: BSD-3-Clause */
/* tls.h - TLS over a connected, nonblocking socket. Never waits, never raises SIGPIPE. tls.c is the
 * only file that knows OpenSSL; tls_none.c takes its place in a library without TLS. */
#pragma once
#include "dlock.h"
#include <sys/types.h>

typedef struct tls_context tls_context; /* trusted authorities and our certificate; shared */

/* One connection. */
typedef struct tls {
    /* After a failure: why the connection ended. The status is that of a request that was not sent.
     * DLOCK_REFUSED: the server has processed nothing, even if requests were sent after our side of
     * the handshake. */
    dlock_status failure;
    char cause[256];
    /* After EAGAIN: repeat the call when the socket is writable, not when there is something to
     * read. */
    bool wants_to_write;
    /* Private to tls.c. */
    struct ssl_st *ssl;
    int fd;
    int fault;      /* errno of the socket, or 0 */
    bool has_heard; /* the server has sent data: our certificate was accepted */
    bool is_over;   /* closed or failed */
} tls;

typedef struct tls_files {
    const char *ca, *cert, *key; /* each may be NULL: the machine's trust store, no certificate */
} tls_files;

/* Reads the files, whose names are copied. DLOCK_INVALID: text says what is wrong with them. *out
 * is NULL on every failure. */
dlock_status tls_context_new(tls_context **out, const tls_files *files, char *text, size_t size);
void tls_context_free(tls_context *context);

/* host: the name or the address in the server's certificate. The descriptor stays the caller's; the
 * context must outlive the connection. NULL: no memory. */
tls *tls_new(const tls_context *context, const char *host, int fd);

/* Reads the files again if they have changed since they were read: new connections use the new
 * certificates. While the new files are no good, as between the change of a certificate and that of
 * its key, the old ones are used. True: the files have changed; text: "", or what is wrong. */
bool tls_context_refresh(tls_context *context, char *text, size_t size);

/* Sends a close_notify if the socket takes the bytes at once. */
void tls_free(tls *tls);

/* All three return like send(2) and recv(2) on such a socket: the number of bytes, of the handshake
 * 1; 0 when the server has closed the connection; else -1 with errno EAGAIN, or with another errno
 * after a failure that ends the connection. Bytes that count as written are in the kernel. */
ssize_t tls_shake_hands(tls *tls);
ssize_t tls_read(tls *tls, char *bytes, size_t size);
ssize_t tls_write(tls *tls, const char *bytes, size_t size);

/* The last call of a thread of the library's own that may have used TLS. */
void tls_end_thread(void);
