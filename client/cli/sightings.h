/* SPDX-License-Identifier: BSD-3-Clause */
/* sightings.h - locks that were seen: kept, filtered, sorted. */
#ifndef DLOCK_CLI_SIGHTINGS_H
#define DLOCK_CLI_SIGHTINGS_H

#include "request.h"

typedef struct sighting {
    dlock_inspection lock; /* its texts are kept here */
    int64_t age_ms;        /* by our clock; negative: not known, as of a plain string */
} sighting;

typedef struct sightings {
    const request *filter;
    sighting *all;
    size_t count, capacity;
    bool has_no_memory;
} sightings;

/* A dlock_list_fn: keeps what the request does not filter out. */
bool sightings_add(void *arg, const dlock_inspection *lock);

/* By waiters, age, ttl or name. What several servers have seen alike is there once. */
bool sightings_can_sort(const char *key);
void sightings_sort(sightings *sightings, const char *key);

void sightings_clear(sightings *sightings);

#endif
