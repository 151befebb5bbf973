/* SPDX-License-Identifier: BSD-3-Clause */
/* spots.h - the names that have a local lock, found by name; those that were found by contention
 * are bounded in number, and the one used least recently makes room. Not thread-safe: hotspot.c has
 * the mutex. */
#ifndef DLOCK_SPOTS_H
#define DLOCK_SPOTS_H

#include "dlock_spi.h"
#include <stdatomic.h>

struct place; /* of one who waits; of hotspot.c */

/* A lock as it is held outside. */
typedef struct spot_lock {
    char token[DLOCK_TOKEN_SIZE];
    uint64_t fence;
    int64_t asked_us;
    uint32_t lease_ms;
    uint32_t min_replicas; /* that know of it */
} spot_lock;

typedef struct spot {
    /* Of spots.c. */
    struct spot *next;          /* in its bucket */
    struct spot *older, *newer; /* of those found by contention */
    uint64_t hash;
    bool is_auto, is_listed; /* listed: can be found by its name */

    uint32_t users; /* while there are some, it is not freed */
    bool is_held;
    struct place *first, **last;
    uint32_t length;
    /* Of the holder. */
    spot_lock lock;
    bool is_handed_on; /* by the one before, to who was next in line */
    uint32_t hand_ons; /* in a row */
    char name[];
} spot;

typedef struct spots {
    spot **buckets;
    size_t bucket_count, auto_count, auto_max;
    spot *oldest, *newest;
    atomic_size_t count; /* may be looked at without the mutex */
} spots;

/* False: no memory. */
bool spots_init(spots *made, size_t auto_max);
/* Nobody uses one. */
void spots_free(spots *old);

/* NULL: it has none. */
spot *spots_find(const spots *in, const char *name);

/* It was registered, and stays until it is removed. NULL: no memory. */
spot *spots_add(spots *to, const char *name);
void spots_remove(spots *from, const char *name);

/* It was contended. Best effort. */
void spots_note(spots *in, const char *name);

/* It was used: others make room before it. */
void spots_touch(spots *in, spot *used);

/* Frees it if nobody uses it and it cannot be found any more. */
void spots_let_go(spot *which);

#endif
