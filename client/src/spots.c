/* SPDX-License-Identifier: BSD-3-Clause */
/* spots.c - see spots.h. A hash table, and a list of those that were found by contention, the one
 * used last at its end; at most auto_max. */
#include "spots.h"

#include "text.h"
#include <stdlib.h>

enum { BUCKETS_AT_FIRST = 64 };

static spot **bucket_of(const spots *in, uint64_t hash) {
    return &in->buckets[hash % in->bucket_count];
}

static spot *find(const spots *in, const char *name, uint64_t hash) {
    for (spot *each = *bucket_of(in, hash); each != NULL; each = each->next)
        if (each->hash == hash && strcmp(each->name, name) == 0) return each;
    return NULL;
}

/* Best effort: longer chains if there is no memory. */
static void grow(spots *in) {
    size_t bucket_count = in->bucket_count * 2;
    spot **buckets = calloc(bucket_count, sizeof(buckets[0]));
    if (buckets == NULL) return;
    spot **old = in->buckets;
    size_t old_count = in->bucket_count;
    in->buckets = buckets;
    in->bucket_count = bucket_count;
    for (size_t i = 0; i < old_count; i++)
        for (spot *each = old[i], *next; each != NULL; each = next) {
            next = each->next;
            spot **bucket = bucket_of(in, each->hash);
            each->next = *bucket;
            *bucket = each;
        }
    free(old);
}

static void leave_auto_list(spots *in, spot *which) {
    if (!which->is_auto) return;
    which->is_auto = false;
    in->auto_count--;
    if (which->older != NULL)
        which->older->newer = which->newer;
    else
        in->oldest = which->newer;
    if (which->newer != NULL)
        which->newer->older = which->older;
    else
        in->newest = which->older;
    which->older = which->newer = NULL;
}

static void join_auto_list(spots *in, spot *which) {
    which->is_auto = true;
    in->auto_count++;
    which->older = in->newest;
    which->newer = NULL;
    if (in->newest != NULL)
        in->newest->newer = which;
    else
        in->oldest = which;
    in->newest = which;
}

/* It cannot be found any more; gone as soon as nobody uses it. */
static void unlist(spots *in, spot *which) {
    spot **link = bucket_of(in, which->hash);
    while (*link != which)
        link = &(*link)->next;
    *link = which->next;
    leave_auto_list(in, which);
    which->is_listed = false;
    atomic_fetch_sub(&in->count, 1);
    spots_let_go(which);
}

static spot *list_new(spots *in, const char *name, uint64_t hash) {
    if (atomic_load(&in->count) >= in->bucket_count) grow(in);
    spot *made = calloc(1, sizeof(*made) + strlen(name) + 1);
    if (made == NULL) return NULL;
    memcpy(made->name, name, strlen(name) + 1);
    made->hash = hash;
    made->last = &made->first;
    made->is_listed = true;
    spot **bucket = bucket_of(in, hash);
    made->next = *bucket;
    *bucket = made;
    atomic_fetch_add(&in->count, 1);
    return made;
}

/* Those that are used stay, so there may be none. */
static bool make_room(spots *in) {
    if (in->auto_count < in->auto_max) return true;
    spot *coldest = in->oldest;
    while (coldest != NULL && coldest->users > 0)
        coldest = coldest->newer;
    if (coldest == NULL) return false;
    unlist(in, coldest);
    return true;
}

bool spots_init(spots *made, size_t auto_max) {
    *made = (spots){.bucket_count = BUCKETS_AT_FIRST, .auto_max = auto_max};
    made->buckets = calloc(made->bucket_count, sizeof(made->buckets[0]));
    return made->buckets != NULL;
}

void spots_free(spots *old) {
    for (size_t i = 0; i < old->bucket_count && old->buckets != NULL; i++)
        while (old->buckets[i] != NULL)
            unlist(old, old->buckets[i]);
    free(old->buckets);
}

spot *spots_find(const spots *in, const char *name) {
    return find(in, name, text_hash(name));
}

spot *spots_add(spots *to, const char *name) {
    uint64_t hash = text_hash(name);
    spot *known = find(to, name, hash);
    if (known == NULL) return list_new(to, name, hash);
    leave_auto_list(to, known); /* from now on it stays */
    return known;
}

void spots_remove(spots *from, const char *name) {
    spot *known = spots_find(from, name);
    if (known != NULL) unlist(from, known);
}

void spots_note(spots *in, const char *name) {
    uint64_t hash = text_hash(name);
    if (find(in, name, hash) != NULL || !make_room(in)) return;
    spot *made = list_new(in, name, hash);
    if (made != NULL) join_auto_list(in, made);
}

void spots_touch(spots *in, spot *used) {
    if (!used->is_auto) return;
    leave_auto_list(in, used);
    join_auto_list(in, used);
}

void spots_let_go(spot *which) {
    if (which->users == 0 && !which->is_listed) free(which);
}
