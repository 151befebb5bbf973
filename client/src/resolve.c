/* SPDX-License-Identifier: BSD-3-Clause */
/* resolve.c - see resolve.h.
 *
 * A name is looked up by a thread of its own. If it takes too long, the caller goes, and the thread
 * throws its result away when it has one: whoever lets go of the job last frees it. */
#include "resolve.h"

#include "deadline.h"
#include "thread.h"
#include <netdb.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

typedef struct job {
    atomic_int users;
    int done_fd;
    addresses found;
    int port;
    int failure; /* of getaddrinfo(3) */
    char host[];
} job;

static void let_go(job *of) {
    if (atomic_fetch_sub(&of->users, 1) != 1) return;
    close(of->done_fd);
    free(of);
}

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

static void *work(void *data) {
    job *of = data;
    of->failure = look_up(&of->found, of->host, of->port, AI_NUMERICSERV | AI_ADDRCONFIG);
    if (of->failure != 0) of->failure = look_up(&of->found, of->host, of->port, AI_NUMERICSERV);
    interrupt_wake(of->done_fd);
    let_go(of);
    return NULL;
}

static job *new_job(const char *host, int port) {
    job *made = calloc(1, sizeof(*made) + strlen(host) + 1);
    if (made == NULL) return NULL;
    memcpy(made->host, host, strlen(host) + 1);
    made->port = port;
    atomic_init(&made->users, 2);
    made->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (made->done_fd < 0 || !thread_start(NULL, work, made)) {
        if (made->done_fd >= 0) close(made->done_fd);
        free(made);
        return NULL;
    }
    return made;
}

/* DLOCK_OK: the job is done. */
static dlock_status wait_for(const job *of, int64_t deadline_us, const environment *env,
                             const interrupt *stop) {
    for (;;) {
        struct pollfd polled[] = {{.fd = of->done_fd, .events = POLLIN},
                                  {.fd = stop->fd, .events = POLLIN}};
        int64_t now_us = env->now_us(env);
        int count = poll(polled, 2, deadline_poll_ms(deadline_us, now_us));
        if (count > 0 && polled[0].revents != 0) {
            interrupt_drain(&(interrupt){.fd = of->done_fd});
            return DLOCK_OK;
        }
        if (count > 0 && polled[1].revents != 0) interrupt_drain(stop);
        if (interrupt_is_requested(stop)) return DLOCK_CANCELED;
        if (env->now_us(env) >= deadline_us) return DLOCK_UNREACHABLE;
    }
}

dlock_status resolve(addresses *found, const char *host, int port, int64_t deadline_us,
                     const environment *env, const interrupt *stop, const char **cause) {
    *cause = "";
    if (look_up(found, host, port, AI_NUMERICHOST | AI_NUMERICSERV) == 0) return DLOCK_OK;
    job *of = new_job(host, port);
    if (of == NULL) return DLOCK_NO_MEMORY;
    dlock_status status = wait_for(of, deadline_us, env, stop);
    if (status == DLOCK_UNREACHABLE) *cause = "the host name was not resolved in time";
    if (status == DLOCK_OK && of->failure != 0) {
        *cause = gai_strerror(of->failure);
        status = of->failure == EAI_MEMORY ? DLOCK_NO_MEMORY : DLOCK_UNREACHABLE;
    }
    if (status == DLOCK_OK) *found = of->found;
    let_go(of);
    return status;
}
