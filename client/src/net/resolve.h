/* SPDX-License-Identifier: BSD-3-Clause */
/* resolve.h - the addresses of a host name, without waiting for getaddrinfo(3), which has no
 * deadline. */
#ifndef DLOCK_NET_RESOLVE_H
#define DLOCK_NET_RESOLVE_H

#include "dlock.h"
#include <sys/socket.h>

enum { ADDRESSES_MAX = 8 };

typedef struct addresses {
    int count;
    struct sockaddr_storage each[ADDRESSES_MAX];
    socklen_t sizes[ADDRESSES_MAX];
} addresses;

/* False: the host is a name, not an address. */
bool resolve_literal(addresses *addresses, const char *host, int port);

/* One host name. All callers at a time share one look-up in a thread of its own, so that names that
 * never resolve do not pile up threads. */
typedef struct resolver resolver;
typedef struct lookup lookup;

/* NULL: no memory. A look-up in flight ends by itself after resolver_free(). */
resolver *resolver_new(const char *host, int port);
void resolver_free(resolver *resolver);

/* Joins the look-up in flight, or begins a new look-up. NULL: no memory, descriptor or thread. */
lookup *resolver_ask(resolver *resolver);
void lookup_leave(lookup *lookup);

/* An eventfd: readable from the moment there is a result, and never emptied. Only for watching; the
 * descriptor belongs to the look-up (loop_close() must not close it: watch a dup(2)). */
int lookup_fd(const lookup *lookup);

/* DLOCK_OK: *found is the result until lookup_leave(), or NULL while there is none. A failure is
 * final; *cause explains the failure and is a static text. */
dlock_status lookup_result(const lookup *lookup, const addresses **found, const char **cause);

#endif
