/* SPDX-License-Identifier: BSD-3-Clause */
/* resolve.c - see resolve.h.
 *
 * A name is looked up by a thread of its own. Who cannot wait any longer leaves; whoever lets go
 * of the look-up last, the thread, the resolver or somebody who asked, frees it. */
#include "resolve.h"

#include "interrupt.h"
#include "thread.h"
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct lookup {
    atomic_int users;
    atomic_bool is_done;
    int done_fd;
    addresses found;
    int port;
    int failure; /* of getaddrinfo(3) */
    char host[];
};

struct resolver {
    pthread_mutex_t mutex;
    lookup *last; /* under way or done; NULL: none */
    int port;
    char host[];
};

static int look_up(addresses *found, const char *host, int port, int flags) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags}, *list = NULL;
    char service[16];
    snprintf(service, sizeof(service), "%d", port);
    int failure = getaddrinfo(host, service, &hints, &list);
    if (failure != 0) return failure;
    found->count = 0;
    for (struct addrinfo *each = list; each != NULL && found->count < ADDRESSES_MAX;
         each = each->ai_next) {
        memcpy(&found->each[found->count], each->ai_addr, each->ai_addrlen);
        found->sizes[found->count++] = each->ai_addrlen;
    }
    freeaddrinfo(list);
    return found->count > 0 ? 0 : EAI_NONAME;
}

/* Without memory, where that is possible. */
static bool read_literal(struct sockaddr_storage *to, socklen_t *size, const char *host, int port) {
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    bool is_v4 = inet_pton(AF_INET, host, &v4.sin_addr) == 1;
    bool is_v6 = !is_v4 && inet_pton(AF_INET6, host, &v6.sin6_addr) == 1;
    *size = is_v4 ? sizeof(v4) : sizeof(v6);
    memcpy(to, is_v4 ? (const void *)&v4 : (const void *)&v6, *size);
    return is_v4 || is_v6;
}

bool resolve_literal(addresses *found, const char *host, int port) {
    found->count = 1;
    if (read_literal(&found->each[0], &found->sizes[0], host, port)) return true;
    return look_up(found, host, port, AI_NUMERICHOST | AI_NUMERICSERV) == 0;
}

/* -- one look-up */

static void *work(void *data) {
    lookup *of = data;
    of->failure = look_up(&of->found, of->host, of->port, AI_NUMERICSERV | AI_ADDRCONFIG);
    if (of->failure != 0) of->failure = look_up(&of->found, of->host, of->port, AI_NUMERICSERV);
    atomic_store(&of->is_done, true);
    interrupt_wake(of->done_fd);
    lookup_leave(of);
    return NULL;
}

/* Used by its thread and by the resolver. */
static lookup *new_lookup(const resolver *of) {
    size_t host_size = strlen(of->host) + 1;
    lookup *made = calloc(1, sizeof(*made) + host_size);
    if (made == NULL) return NULL;
    memcpy(made->host, of->host, host_size);
    made->port = of->port;
    atomic_init(&made->users, 2);
    atomic_init(&made->is_done, false);
    made->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (made->done_fd < 0 || !thread_start(NULL, work, made)) {
        if (made->done_fd >= 0) close(made->done_fd);
        free(made);
        return NULL;
    }
    return made;
}

void lookup_leave(lookup *of) {
    if (of == NULL || atomic_fetch_sub(&of->users, 1) != 1) return;
    close(of->done_fd);
    free(of);
}

int lookup_fd(const lookup *of) {
    return of->done_fd;
}

dlock_status lookup_result(const lookup *of, const addresses **found, const char **cause) {
    *found = NULL;
    *cause = "";
    if (!atomic_load(&of->is_done)) return DLOCK_OK;
    if (of->failure == 0) {
        *found = &of->found;
        return DLOCK_OK;
    }
    *cause = gai_strerror(of->failure);
    return of->failure == EAI_MEMORY ? DLOCK_NO_MEMORY : DLOCK_UNREACHABLE;
}

/* -- a name */

resolver *resolver_new(const char *host, int port) {
    size_t host_size = strlen(host) + 1;
    resolver *made = calloc(1, sizeof(*made) + host_size);
    if (made == NULL) return NULL;
    memcpy(made->host, host, host_size);
    made->port = port;
    pthread_mutex_init(&made->mutex, NULL);
    return made;
}

void resolver_free(resolver *old) {
    if (old == NULL) return;
    lookup_leave(old->last);
    pthread_mutex_destroy(&old->mutex);
    free(old);
}

lookup *resolver_ask(resolver *of) {
    pthread_mutex_lock(&of->mutex);
    if (of->last != NULL && atomic_load(&of->last->is_done)) {
        lookup_leave(of->last);
        of->last = NULL;
    }
    if (of->last == NULL) of->last = new_lookup(of);
    lookup *joined = of->last;
    if (joined != NULL) atomic_fetch_add(&joined->users, 1);
    pthread_mutex_unlock(&of->mutex);
    return joined;
}
