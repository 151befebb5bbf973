/* SPDX-License-Identifier: BSD-3-Clause */
/* resolve.h - the addresses of a host name, without waiting for getaddrinfo(3), which has no
 * deadline. */
#ifndef DLOCK_RESOLVE_H
#define DLOCK_RESOLVE_H

#include "dlock.h"
#include <sys/socket.h>

enum { ADDRESSES_MAX = 8 };

typedef struct addresses {
    int count;
    struct sockaddr_storage each[ADDRESSES_MAX];
    socklen_t sizes[ADDRESSES_MAX];
} addresses;

/* False: it is a name, not an address. */
bool resolve_literal(addresses *found, const char *host, int port);

/* A host name. However many ask for it at a time, there is one look-up under way at most, and they
 * share it: names that are never resolved do not pile up threads. */
typedef struct resolver resolver;
typedef struct lookup lookup;

/* NULL: no memory. What is under way when it is freed ends by itself. */
resolver *resolver_new(const char *host, int port);
void resolver_free(resolver *old);

/* Joins the look-up under way, or begins one. NULL: no memory, descriptor or thread. */
lookup *resolver_ask(resolver *of);
void lookup_leave(lookup *of);

/* Readable, and stays so, once there is a result. */
int lookup_fd(const lookup *of);

/* DLOCK_OK: *found is the result, or NULL: there is none yet. It lives as long as the look-up is
 * not left. Else there will be none; *cause says why, and is static. */
dlock_status lookup_result(const lookup *of, const addresses **found, const char **cause);

#endif
