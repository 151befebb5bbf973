/* SPDX-License-Identifier: BSD-3-Clause */
/* resolve.c - see resolve.h.
 *
 *   lookup_join    joins the look-up in flight, or starts a thread with a new look-up
 *   run            the thread: getaddrinfo(3), then the result, then the eventfd
 *   lookup_leave   counts users: the thread, *last and every caller; the last user frees
 *
 * Only the count and is_done are shared with the thread, and both are atomic. The result is written
 * before is_done and never changed afterwards. */
#include "net/resolve.h"

#include "base/platform.h"
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int look_up(addresses *addresses, const char *host, int port, int flags) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags}, *list = NULL;
    char service[16];
    snprintf(service, sizeof(service), "%d", port);
    int failure = getaddrinfo(host, service, &hints, &list);
    if (failure != 0) return failure;
    int count = 0;
    for (struct addrinfo *info = list; info != NULL && count < ADDRESSES_MAX;
         info = info->ai_next) {
        memcpy(&addresses->each[count], info->ai_addr, info->ai_addrlen);
        addresses->sizes[count++] = info->ai_addrlen;
    }
    addresses->count = count;
    freeaddrinfo(list);
    return count > 0 ? 0 : EAI_NONAME;
}

bool resolve_literal(addresses *addresses, const char *host, int port) {
    return look_up(addresses, host, port, AI_NUMERICHOST | AI_NUMERICSERV) == 0;
}

/* -- one look-up */

static void *run_lookup(void *arg) {
    lookup *lookup = arg;
    int failure =
        look_up(&lookup->found, lookup->host, lookup->port, AI_NUMERICSERV | AI_ADDRCONFIG);
    if (failure != 0) failure = look_up(&lookup->found, lookup->host, lookup->port, AI_NUMERICSERV);
    if (failure != 0) {
        lookup->status = failure == EAI_MEMORY ? DLOCK_NO_MEMORY : DLOCK_UNREACHABLE;
        lookup->cause = gai_strerror(failure);
    }
    atomic_store(&lookup->is_done, true);
    eventfd_write(lookup->done_fd, 1);
    lookup_leave(lookup);
    return NULL;
}

/* The new look-up has two users: the thread and *last. */
static lookup *start_lookup(const char *host, int port, bool may_start_thread) {
    size_t host_size = strlen(host) + 1;
    lookup *lookup = calloc(1, sizeof(*lookup) + host_size);
    if (lookup == NULL) return NULL;
    memcpy(lookup->host, host, host_size);
    lookup->port = port;
    atomic_init(&lookup->users, 2);
    lookup->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bool is_started =
        lookup->done_fd >= 0 &&
        (may_start_thread ? thread_start(NULL, run_lookup, lookup) : run_lookup(lookup) == NULL);
    if (is_started) return lookup;
    if (lookup->done_fd >= 0) close(lookup->done_fd);
    free(lookup);
    return NULL;
}

void lookup_leave(lookup *lookup) {
    if (lookup == NULL || atomic_fetch_sub(&lookup->users, 1) != 1) return;
    close(lookup->done_fd);
    free(lookup);
}

lookup *lookup_join(lookup **last, const char *host, int port, bool may_start_thread) {
    if (*last != NULL && atomic_load(&(*last)->is_done)) {
        lookup_leave(*last);
        *last = NULL;
    }
    if (*last == NULL) *last = start_lookup(host, port, may_start_thread);
    if (*last != NULL) atomic_fetch_add(&(*last)->users, 1);
    return *last;
}
