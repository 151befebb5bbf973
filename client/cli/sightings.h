/* SPDX-License-Identifier: BSD-3-Clause */
/* sightings.h - locks as they were seen: filtered, sorted; and the servers that gave no result. */
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

/* As an object of JSON, or only its members. */
void sighting_show_json(const sighting *seen);
void sighting_show_members(const sighting *seen);

void sightings_clear(sightings *sightings);

/* -- failures: of several independent servers. A query succeeds if a majority replies; then the
 *    library's why has a line for each of the others */

enum { FAILURES_SIZE = REQUEST_URLS_MAX * 300 }; /* room for why */

/* A line: the server, a colon, a blank, the cause. Points into why. */
typedef struct failure {
    const char *line;
    size_t length, server_length;
} failure;

/* Reads the line at the front of *rest and moves *rest behind it. False: no more. */
bool failures_next(const char **rest, failure *failure);

int failures_count(const char *why);

#endif
