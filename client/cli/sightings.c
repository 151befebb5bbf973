/* SPDX-License-Identifier: BSD-3-Clause */
/* sightings.c - see sightings.h. */
#include "sightings.h"

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

static bool make_room(sightings *in) {
    if (in->count < in->capacity) return true;
    size_t capacity = in->capacity == 0 ? 64 : 2 * in->capacity;
    sighting *all = realloc(in->all, capacity * sizeof(all[0]));
    if (all == NULL) return false;
    in->all = all;
    in->capacity = capacity;
    return true;
}

static void forget(sighting *old) {
    free((char *)old->of.server);
    free((char *)old->of.name);
    free((char *)old->of.token);
}

bool sightings_add(void *arg, const dlock_inspection *lock) {
    sightings *to = arg;
    int64_t age_ms = age_of(lock);
    if (to->filter->held_longer_ms > 0 && age_ms <= to->filter->held_longer_ms) return true;
    if (to->filter->is_waited_for && lock->waiters == 0) return true;
    sighting made = {.of = *lock, .age_ms = age_ms};
    made.of.server = copy(lock->server, strlen(lock->server));
    made.of.name = copy(lock->name, lock->name_length);
    made.of.token = copy(lock->token, lock->token_length);
    bool is_whole = made.of.server != NULL && made.of.name != NULL && made.of.token != NULL;
    to->has_no_memory = !is_whole || !make_room(to);
    if (!to->has_no_memory) {
        to->all[to->count++] = made;
        return true;
    }
    forget(&made);
    return false;
}

/* -- order */

static int compare_names(const void *a, const void *b) {
    return strcmp(((const sighting *)a)->of.name, ((const sighting *)b)->of.name);
}

static int compare(int64_t one, int64_t other, const void *a, const void *b) {
    return one != other ? (one > other) - (one < other) : compare_names(a, b);
}

static int compare_waiters(const void *a, const void *b) {
    return compare(((const sighting *)b)->of.waiters, ((const sighting *)a)->of.waiters, a, b);
}

static int compare_ages(const void *a, const void *b) {
    return compare(((const sighting *)b)->age_ms, ((const sighting *)a)->age_ms, a, b);
}

static int compare_ttls(const void *a, const void *b) {
    return compare(((const sighting *)a)->of.ttl_ms, ((const sighting *)b)->of.ttl_ms, a, b);
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

/* Independent servers that keep a lock together have a copy each. Sorted by name. */
static void merge(sightings *of) {
    size_t kept = 0;
    for (size_t i = 0; i < of->count; i++) {
        sighting *last = kept > 0 ? &of->all[kept - 1] : NULL, *next = &of->all[i];
        if (last != NULL && strcmp(last->of.name, next->of.name) == 0 &&
            strcmp(last->of.token, next->of.token) == 0)
            forget(next);
        else
            of->all[kept++] = *next;
    }
    of->count = kept;
}

void sightings_sort(sightings *of, const char *key) {
    if (of->count == 0) return;
    qsort(of->all, of->count, sizeof(of->all[0]), compare_names);
    merge(of);
    if (of->count > 1) qsort(of->all, of->count, sizeof(of->all[0]), find(key)->compare);
}

void sightings_clear(sightings *of) {
    for (size_t i = 0; i < of->count; i++)
        forget(&of->all[i]);
    free(of->all);
    *of = (sightings){.filter = of->filter};
}
