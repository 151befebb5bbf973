/* SPDX-License-Identifier: BSD-3-Clause */
/* hotspot.h - the handler that lets the threads of this process compete among themselves first for
 * hot names, so that only one of them goes out to the service. */
#pragma once
#include "handlers/chain.h"
#include "handlers/hot_names.h"

/* hot_names_init() for the names; zero for the counters. */
typedef struct hotspot {
    deployment *deployment;
    uint32_t queue_max; /* how many calls may wait for one name */
    bool is_ordered;    /* requests to the service arrive in the order of sending: the next thread
                         * may go out once the release is on its way */
    uint32_t hand_on; /* how often in a row a lock is passed on without a request to the service */
    hot_names names;
    atomic_uint_least64_t hand_ons; /* so far */
    atomic_uint_least64_t waiting;  /* calls in local queues now */
} hotspot;

dlock_handler hotspot_handler(hotspot *hotspot);

/* No name has a local lock or can get one, nor has the call one from before: the call may go
 * without the handler. */
static inline bool hotspot_is_idle(const hotspot *hotspot, const call *call) {
    bool has_names = hotspot->names.auto_max > 0 || atomic_load(&hotspot->names.count) > 0;
    return !has_names && atomic_load(&call->held) == NULL;
}

/* A handler of the program has answered a release, so the hotspot handler did not see it: passes
 * the local lock on to the next call. Not locked. */
void hotspot_forget(call *call);
