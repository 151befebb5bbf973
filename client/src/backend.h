/* SPDX-License-Identifier: BSD-3-Clause */
/* backend.h - what keeps locks: anything that can add-if-absent and compare-and-delete.
 *
 * Each function asks once, and says why not in the call's cause. None waits beyond its limit. To
 * add a deployment: a file with a table like this. What others may write is in dlock_spi.h, and
 * custom.c makes one of these of it. */
#ifndef DLOCK_BACKEND_H
#define DLOCK_BACKEND_H

#include "claim.h"

typedef struct backend backend;

/* A server of the deployment. Anything but DLOCK_OK is the end of it, and the result. */
typedef dlock_status (*backend_visit)(void *arg, struct server *at);

typedef struct backend_table {
    /* DLOCK_OK: the call's fence and asked_us are set. DLOCK_BUSY: another holds it, even after the
     * service has waited for wait_ms (0: it is not to wait). Anything else: of->is_passing and
     * of->is_sent are set. Returns by limit_us, which is later than the call's deadline. */
    dlock_status (*acquire)(backend *self, claim *of, uint32_t wait_ms, int64_t limit_us);
    /* For the call's lease_ms from now. DLOCK_OK: its asked_us is set. DLOCK_LOST: the token does
     * not hold it. */
    dlock_status (*extend)(backend *self, claim *of, int64_t limit_us);
    /* Many at once, as extend; outcomes has the status of each. */
    void (*extend_all)(backend *self, claim *const claims[], dlock_status outcomes[], size_t count,
                       const interrupt *stop, int64_t limit_us);
    /* DLOCK_LOST: the token did not hold it. May tell of->on_sent. */
    dlock_status (*release)(backend *self, claim *of, int64_t limit_us);
    /* DLOCK_OK: it is there and has what we need. */
    dlock_status (*ping)(backend *self, claim *of, int64_t limit_us);
    /* Each server that has locks (of a cluster: the masters), one after the other. If it is not
     * found out by limit_us where they are, the call's cause says why. NULL: there are none. */
    dlock_status (*visit_servers)(backend *self, claim *of, int64_t limit_us, backend_visit visit,
                                  void *arg);
    /* A session's connection: ends it; and what becomes readable when it has ended. */
    void (*hang_up)(claim_link *link);
    int (*link_fd)(const claim_link *link);
    /* Requests sent so far. */
    uint64_t (*command_count)(const backend *self);
    void (*free)(backend *self);
    bool can_wait; /* it can park a claim until the lock is free */
    bool has_sessions, has_replicas;
} backend_table;

struct backend {
    const backend_table *table;
};

#endif
