/* SPDX-License-Identifier: BSD-3-Clause */
/* client.h - what the locks of a client share. */
#ifndef DLOCK_CLIENT_H
#define DLOCK_CLIENT_H

#include "access_log.h"
#include "chain.h"
#include "environment.h"
#include "hotspot.h"
#include "interrupt.h"
#include "random.h"
#include "renewal.h"
#include "service.h"
#include "tls.h"
#include "watch.h"
#include <stdatomic.h>

typedef enum client_counter {
    COUNT_ACQUIRED,
    COUNT_BUSY,
    COUNT_TIMEOUTS,
    COUNT_QUEUE_FULL,
    COUNT_FAILURES,
    COUNT_RELEASED,
    COUNT_LOST,
    COUNTERS
} client_counter;

/* What a request may take. */
typedef struct client_limits {
    uint32_t connect_timeout_ms, io_timeout_ms;
} client_limits;

struct dlock_client {
    client_limits limits;
    dlock_event_fn on_event; /* NULL: nobody wants to be told */
    void *event_arg;
    watch *watcher; /* NULL: the same */
    renewal *renewals;
    tls_context *trust; /* NULL: none of rediss:// */
    service *remote;
    hotspot *local;
    access_log *log; /* NULL: none */
    chain *handlers;
    const environment *env;
    interrupt_stock *wakers;
    char *prefix;
    token_source *tokens;
    atomic_uint_least64_t counters[COUNTERS];
};

void client_count(dlock_client *of, client_counter counter);

/* The name with the prefix before it, to be freed; NULL: no memory. */
char *client_full_name(const dlock_client *of, const char *name);

#endif
