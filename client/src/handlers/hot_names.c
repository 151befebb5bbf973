/* SPDX-License-Identifier: BSD-3-Clause */
/* hot_names.c - see hot_names.h.
 *
 * Invariants: a name that can be found is in the tree and in one of the two lists; auto_count is
 * the length of the list of names found by contention, at most auto_max. A name that was removed
 * while the local lock is held lives on, in no list, until the last holder is through. */
#include "handlers/hot_names.h"

#include <search.h>
#include <stdlib.h>

static int compare(const void *one, const void *other) {
    return strcmp(one, other);
}

static void put(hot_names *names, hot_name *hot, bool is_found) {
    hot->is_found = is_found;
    if (is_found) names->auto_count++;
    list_append(&names->lists[is_found], &hot->node);
}

static void take_out(hot_names *names, hot_name *hot) {
    list_remove(&hot->node);
    if (hot->is_found) names->auto_count--;
}

static void unlist(hot_names *names, hot_name *hot) {
    tdelete(hot->name, &names->root, compare);
    take_out(names, hot);
    atomic_fetch_sub(&names->count, 1);
    if (!hot->is_held) free(hot);
}

/* False: no memory. */
static bool list_new(hot_names *names, const char *name, bool is_found) {
    hot_name *hot = calloc(1, sizeof(*hot) + strlen(name) + 1);
    if (hot == NULL) return false;
    memcpy(hot->name, name, strlen(name) + 1);
    if (tsearch(hot->name, &names->root, compare) == NULL) {
        free(hot);
        return false;
    }
    list_init(&hot->queue);
    put(names, hot, is_found);
    atomic_fetch_add(&names->count, 1);
    return true;
}

/* Names whose local lock is held stay. False: all are. */
static bool make_room(hot_names *names) {
    if (names->auto_count < names->auto_max) return true;
    list_each(hot_name, hot, &names->lists[true], node) {
        if (hot->is_held) continue;
        unlist(names, hot);
        return true;
    }
    return false;
}

void hot_names_init(hot_names *names, size_t auto_max) {
    *names = (hot_names){.auto_max = auto_max};
    list_init(&names->lists[false]);
    list_init(&names->lists[true]);
}

void hot_names_free(hot_names *names) {
    while (names->root != NULL) /* a node of the tree begins with a pointer to the name */
        unlist(names, container_of(*(char **)names->root, hot_name, name));
}

hot_name *hot_names_find(const hot_names *names, const char *name) {
    char *const *found = tfind(name, &names->root, compare);
    return found == NULL ? NULL : container_of(*found, hot_name, name);
}

bool hot_names_add(hot_names *names, const char *name) {
    hot_name *known = hot_names_find(names, name);
    if (known == NULL) return list_new(names, name, false);
    take_out(names, known);
    put(names, known, false); /* registered from now on */
    return true;
}

void hot_names_remove(hot_names *names, const char *name) {
    hot_name *known = hot_names_find(names, name);
    if (known != NULL) unlist(names, known);
}

void hot_names_note(hot_names *names, const char *name) {
    if (hot_names_find(names, name) == NULL && make_room(names)) list_new(names, name, true);
}

void hot_names_touch(hot_names *names, hot_name *hot) {
    if (!hot->is_found || !list_has(&hot->node)) return;
    list_remove(&hot->node);
    list_append(&names->lists[true], &hot->node);
}

void hot_name_let_go(hot_name *hot) {
    hot->is_held = false;
    if (!list_has(&hot->node)) free(hot);
}
