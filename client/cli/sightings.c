/* SPDX-License-Identifier: BSD-3-Clause */
/* sightings.c - see sightings.h.
 *
 *   add       copies a lock, unless the filter excludes the lock
 *   merge     copies of a lock at independent servers become one
 *   order     one comparison for each key; equal locks are sorted by name
 *   failures  the servers without a result */
#include "sightings.h"

#include "output.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int64_t age_of(const dlock_inspection *lock) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t age_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 - lock->since_ms;
    if (lock->since_ms == 0) return -1;
    return age_ms > 0 ? age_ms : 0; /* our clock is behind */
}

static char *copy(const char *bytes, size_t length) {
    char *made = malloc(length + 1);
    if (made == NULL) return NULL;
    memcpy(made, bytes, length);
    made[length] = '\0';
    return made;
}

static bool make_room(sightings *sightings) {
    if (sightings->count < sightings->capacity) return true;
    size_t capacity = sightings->capacity == 0 ? 64 : 2 * sightings->capacity;
    sighting *all = realloc(sightings->all, capacity * sizeof(all[0]));
    if (all == NULL) return false;
    sightings->all = all;
    sightings->capacity = capacity;
    return true;
}

static void forget(sighting *old) {
    free((char *)old->lock.server);
    free((char *)old->lock.name);
    free((char *)old->lock.token);
}

bool sightings_add(void *arg, const dlock_inspection *lock) {
    sightings *sightings = arg;
    int64_t age_ms = age_of(lock);
    const request *filter = sightings->filter;
    if (filter != NULL && filter->held_longer_ms > 0 && age_ms <= filter->held_longer_ms)
        return true;
    if (filter != NULL && filter->is_waited_for && lock->waiters == 0) return true;
    sighting made = {.lock = *lock, .age_ms = age_ms, .copies = 1};
    made.lock.server = copy(lock->server, strlen(lock->server));
    made.lock.name = copy(lock->name, lock->name_length);
    made.lock.token = copy(lock->token, lock->token_length);
    bool is_whole = made.lock.server != NULL && made.lock.name != NULL && made.lock.token != NULL;
    sightings->has_no_memory = !is_whole || !make_room(sightings);
    if (!sightings->has_no_memory) {
        sightings->all[sightings->count++] = made;
        return true;
    }
    forget(&made);
    return false;
}

/* -- order */

/* Any byte may be in a name or a token, also NUL. */
static int compare_bytes(const char *one, size_t one_length, const char *other,
                         size_t other_length) {
    int bytes = memcmp(one, other, one_length < other_length ? one_length : other_length);
    return bytes != 0 ? bytes : (one_length > other_length) - (one_length < other_length);
}

static int compare_names(const void *a, const void *b) {
    const sighting *one = a, *other = b;
    return compare_bytes(one->lock.name, one->lock.name_length, other->lock.name,
                         other->lock.name_length);
}

bool sighting_is_namesake(const sighting *one, const sighting *other) {
    return compare_names(one, other) == 0;
}

static int compare(int64_t one, int64_t other, const void *a, const void *b) {
    return one != other ? (one > other) - (one < other) : compare_names(a, b);
}

static int compare_waiters(const void *a, const void *b) {
    return compare(((const sighting *)b)->lock.waiters, ((const sighting *)a)->lock.waiters, a, b);
}

static int compare_ages(const void *a, const void *b) {
    return compare(((const sighting *)b)->age_ms, ((const sighting *)a)->age_ms, a, b);
}

static int compare_ttls(const void *a, const void *b) {
    return compare(((const sighting *)a)->lock.ttl_ms, ((const sighting *)b)->lock.ttl_ms, a, b);
}

static const struct order {
    const char *key;
    int (*compare)(const void *a, const void *b);
} orders[] = {{"waiters", compare_waiters},
              {"age", compare_ages},
              {"ttl", compare_ttls},
              {"name", compare_names}};

static const struct order *find(const char *key) {
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
        if (strcmp(orders[i].key, key) == 0) return &orders[i];
    return NULL;
}

bool sightings_can_sort(const char *key) {
    return find(key) != NULL;
}

/* 0: copies of one lock. */
static int compare_copies(const void *a, const void *b) {
    const sighting *one = a, *other = b;
    int names = compare_names(a, b);
    if (names != 0) return names;
    return compare_bytes(one->lock.token, one->lock.token_length, other->lock.token,
                         other->lock.token_length);
}

/* Independent servers that keep a lock together have a copy each. */
static void merge(sightings *sightings) {
    size_t kept = 0;
    qsort(sightings->all, sightings->count, sizeof(sightings->all[0]), compare_copies);
    for (size_t i = 0; i < sightings->count; i++) {
        sighting *last = kept > 0 ? &sightings->all[kept - 1] : NULL, *next = &sightings->all[i];
        if (last == NULL || compare_copies(last, next) != 0) {
            sightings->all[kept++] = *next;
            continue;
        }
        last->copies += next->copies;
        forget(next);
    }
    sightings->count = kept;
}

void sightings_sort(sightings *sightings, const char *key) {
    if (sightings->count == 0) return;
    merge(sightings);
    if (sightings->count > 1)
        qsort(sightings->all, sightings->count, sizeof(sightings->all[0]), find(key)->compare);
}

size_t sighting_holder(const sighting *seen, char text[SIGHTING_HOLDER_SIZE]) {
    int used = 0;
    size_t length = seen->lock.token_length;
    if (seen->lock.mode == DLOCK_SHARED)
        used = snprintf(text, SIGHTING_HOLDER_SIZE, "%" PRId64 " share: ", seen->lock.holders);
    size_t room = (size_t)(SIGHTING_HOLDER_SIZE - used);
    if (length > room) length = room;
    memcpy(text + used, seen->lock.token, length);
    return (size_t)used + length;
}

void sighting_show_members(const sighting *seen) {
    json_bytes("name", seen->lock.name, seen->lock.name_length);
    json_bytes("token", seen->lock.token, seen->lock.token_length);
    json_number("fence", (int64_t)seen->lock.fence);
    json_number("ttl_ms", seen->lock.ttl_ms);
    json_number("lease_ms", seen->lock.lease_ms);
    json_number("since_ms", seen->lock.since_ms);
    json_number("waiters", seen->lock.waiters);
    json_number("session", seen->lock.session);
    json_text("kind", seen->lock.is_string ? "string" : "lock");
    json_text("mode", seen->lock.mode == DLOCK_SHARED ? "shared" : "exclusive");
    json_number("holders", seen->lock.holders);
    json_text("server", seen->lock.server);
}

void sighting_show_json(const sighting *seen) {
    json_object_begin(NULL);
    sighting_show_members(seen);
    json_object_end();
}

void sightings_clear(sightings *sightings) {
    for (size_t i = 0; i < sightings->count; i++)
        forget(&sightings->all[i]);
    free(sightings->all);
    *sightings = (struct sightings){.filter = sightings->filter};
}

/* -- failures */

bool failures_next(const char **rest, failure *failure) {
    const char *line = *rest;
    size_t length = strcspn(line, "\n");
    const char *colon = memmem(line, length, ": ", 2);
    if (length == 0) return false;
    *rest = line + length + (line[length] == '\n' ? 1 : 0);
    *failure = (struct failure){line, length, colon != NULL ? (size_t)(colon - line) : length};
    return true;
}

int failures_count(const char *why) {
    int count = 0;
    failure failure;
    while (failures_next(&why, &failure))
        count++;
    return count;
}
