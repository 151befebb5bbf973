/* SPDX-License-Identifier: BSD-3-Clause */
/* hot_names.c - see hot_names.h.
 *
 * A tree and a list of all names, and a list of the names that were found by contention.
 *
 * Invariants: a name is in the list if and only if contention found it and nobody registered it
 * since; auto_count is the length of the list, at most auto_max. A name that was removed while the
 * local lock is held lives on, unlisted, until the last holder is through. */
#include "handlers/hot_names.h"

#include <search.h>
#include <stdlib.h>

static int compare(const void *one, const void *other) {
    return strcmp(one, other);
}

static void forget_contention(hot_names *names, hot_name *hot) {
    if (!list_has(&hot->recent)) return;
    list_remove(&hot->recent);
    names->auto_count--;
}

static void unlist(hot_names *names, hot_name *hot) {
    tdelete(hot->name, &names->root, compare);
    forget_contention(names, hot);
    list_remove(&hot->all);
    hot->is_listed = false;
    atomic_fetch_sub(&names->count, 1);
    if (!hot->is_held) free(hot);
}

/* NULL: no memory. */
static hot_name *list_new(hot_names *names, const char *name) {
    hot_name *hot = calloc(1, sizeof(*hot) + strlen(name) + 1);
    if (hot == NULL) return NULL;
    memcpy(hot->name, name, strlen(name) + 1);
    if (tsearch(hot->name, &names->root, compare) == NULL) {
        free(hot);
        return NULL;
    }
    list_init(&hot->queue);
    list_append(&names->all, &hot->all);
    hot->is_listed = true;
    atomic_fetch_add(&names->count, 1);
    return hot;
}

/* Names whose local lock is held stay. False: all are. */
static bool make_room(hot_names *names) {
    if (names->auto_count < names->auto_max) return true;
    list_each(hot_name, hot, &names->recent, recent) {
        if (hot->is_held) continue;
        unlist(names, hot);
        return true;
    }
    return false;
}

void hot_names_init(hot_names *names, size_t auto_max) {
    *names = (hot_names){.auto_max = auto_max};
    list_init(&names->all);
    list_init(&names->recent);
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
    if (known == NULL) return list_new(names, name) != NULL;
    forget_contention(names, known); /* registered from now on */
    return true;
}

void hot_names_remove(hot_names *names, const char *name) {
    hot_name *known = hot_names_find(names, name);
    if (known != NULL) unlist(names, known);
}

void hot_names_note(hot_names *names, const char *name) {
    if (hot_names_find(names, name) != NULL || !make_room(names)) return;
    hot_name *hot = list_new(names, name);
    if (hot == NULL) return;
    list_append(&names->recent, &hot->recent);
    names->auto_count++;
}

void hot_names_touch(hot_names *names, hot_name *hot) {
    if (!list_has(&hot->recent)) return;
    list_remove(&hot->recent);
    list_append(&names->recent, &hot->recent);
}

void hot_name_let_go(hot_name *hot) {
    hot->is_held = false;
    if (!hot->is_listed) free(hot);
}
