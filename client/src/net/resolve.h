/* SPDX-License-Identifier: BSD-3-Clause */
/* resolve.h - the addresses of a host name, without waiting for getaddrinfo(3), which has no
 * deadline. */
#pragma once
#include "dlock.h"
#include <stdatomic.h>
#include <sys/socket.h>

enum { ADDRESSES_MAX = 8 };

typedef struct addresses {
    int count;
    struct sockaddr_storage each[ADDRESSES_MAX];
    socklen_t sizes[ADDRESSES_MAX];
} addresses;

/* False: the host is a name, not an address, and nothing was written. */
bool resolve_literal(addresses *addresses, const char *host, int port);

/* A look-up of a host name in a thread of its own, which ends by itself; or, where no thread may be
 * started, within lookup_join(), which then takes as long as getaddrinfo(3). */
typedef struct lookup {
    atomic_bool is_done; /* the next three are final; not to be read before */
    dlock_status status;
    const char *cause; /* of a failure: a static text */
    addresses found;   /* with DLOCK_OK */
    /* An eventfd: readable once it is done, and never emptied. Belongs to the look-up (loop_close()
     * must not close it: watch a dup(2)). */
    int done_fd;
    /* Private to resolve.c. */
    atomic_int users;
    int port;
    char host[];
} lookup;

/* Joins the look-up of the host that is in flight, or begins a new one. Callers share a look-up
 * because each has a thread, and a name that never resolves would pile up threads. *last is the
 * last look-up of that host, NULL at first; its owner calls lookup_leave() at the end. NULL: no
 * memory, descriptor or thread. Locked (loop.h). */
lookup *lookup_join(lookup **last, const char *host, int port, bool may_start_thread);
void lookup_leave(lookup *lookup); /* NULL is fine */
