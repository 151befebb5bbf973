/* SPDX-License-Identifier: BSD-3-Clause */
/* resolve.h - the addresses of a host name, by a deadline, which getaddrinfo(3) does not have. */
#ifndef DLOCK_RESOLVE_H
#define DLOCK_RESOLVE_H

#include "dlock.h"
#include "environment.h"
#include "interrupt.h"
#include <sys/socket.h>

enum { ADDRESSES_MAX = 8 };

typedef struct addresses {
    int count;
    struct sockaddr_storage each[ADDRESSES_MAX];
    socklen_t sizes[ADDRESSES_MAX];
} addresses;

/* DLOCK_UNREACHABLE: *cause says why; it is static. DLOCK_CANCELED. DLOCK_NO_MEMORY. */
dlock_status resolve(addresses *found, const char *host, int port, int64_t deadline_us,
                     const environment *env, const interrupt *stop, const char **cause);

#endif
