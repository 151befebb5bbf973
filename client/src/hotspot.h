/* SPDX-License-Identifier: BSD-3-Clause */
/* hotspot.h - the handler that lets the threads of this process compete among themselves first, for
 * names that are worth it, so that one of them goes out. */
#ifndef DLOCK_HOTSPOT_H
#define DLOCK_HOTSPOT_H

#include "claim.h"
#include "environment.h"

typedef struct hotspot hotspot;

typedef struct hotspot_rule {
    uint32_t auto_max;      /* names found by contention; 0: none */
    uint32_t queue_max;     /* who may wait for one name */
    bool is_queued_outside; /* the service has a queue: who comes too early waits there */
    uint32_t hand_on; /* how often in a row the lock is passed on without a word to the service */
} hotspot_rule;

/* NULL: no memory. */
hotspot *hotspot_new(const hotspot_rule *rule, const environment *env);
/* No lock of the client may be held. */
void hotspot_free(hotspot *old);

dlock_handler hotspot_handler(hotspot *of);

/* name: with the prefix. */
dlock_status hotspot_add(hotspot *to, const char *name);
void hotspot_remove(hotspot *from, const char *name);

uint64_t hotspot_hand_ons(const hotspot *of);

/* How many wait in line now. */
uint64_t hotspot_waiting(const hotspot *of);

/* How many names have a local lock now. */
size_t hotspot_count(const hotspot *of);

#endif
