/* SPDX-License-Identifier: BSD-3-Clause */
/* sightings.h - locks as they were seen: filtered, sorted. */
#ifndef DLOCK_CLI_SIGHTINGS_H
#define DLOCK_CLI_SIGHTINGS_H

#include "request.h"

typedef struct sighting {
    dlock_inspection lock; /* with texts of its own */
    int64_t age_ms; /* by the clock of this machine; negative: unknown, as of a plain string */
    int copies;     /* servers that have the lock with this token */
} sighting;

typedef struct sightings {
    const request *filter; /* NULL: every lock counts */
    sighting *all;
    size_t count, capacity;
    bool has_no_memory;
} sightings;

/* A dlock_list_fn: adds the lock unless the request filters it out. */
bool sightings_add(void *arg, const dlock_inspection *lock);

/* By waiters, age, ttl or name. Copies of a lock at several servers become one. */
bool sightings_can_sort(const char *key);
void sightings_sort(sightings *sightings, const char *key);

/* Locks of the same name: copies, or different holders at independent servers. */
bool sighting_is_namesake(const sighting *one, const sighting *other);

/* The holder, for a column: the token; for a shared lock also the number of holders. */
enum { SIGHTING_HOLDER_SIZE = 300 };
size_t sighting_holder(const sighting *seen, char text[SIGHTING_HOLDER_SIZE]);

void sightings_clear(sightings *sightings);

#endif
