/* SPDX-License-Identifier: BSD-3-Clause */
/* list.h - the doubly linked list of the module. Pure.
 *
 * A node is a member of the object in the list, so adding and removing an object costs no
 * allocation. A list of zeros is empty. A node knows neither its list nor whether it is in one. */
#ifndef DLOCK_LIST_H
#define DLOCK_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct list_node {
    struct list_node *prev, *next;
} list_node;

typedef struct list {
    list_node *first, *last;
} list;

/* The object whose member is the node; NULL for no node. */
#define LIST_OBJECT(node, type, member) ((type *)list_object((node), offsetof(type, member)))

static inline void *list_object(list_node *node, size_t offset) {
    return node == NULL ? NULL : (char *)node - offset;
}

static inline void list_append(list *to, list_node *added) {
    added->prev = to->last;
    added->next = NULL;
    if (to->last != NULL)
        to->last->next = added;
    else
        to->first = added;
    to->last = added;
}

static inline void list_prepend(list *to, list_node *added) {
    added->prev = NULL;
    added->next = to->first;
    if (to->first != NULL)
        to->first->prev = added;
    else
        to->last = added;
    to->first = added;
}

/* Moves all nodes of the other list behind those of this one. */
static inline void list_append_all(list *to, list *from) {
    if (from->first == NULL) return;
    from->first->prev = to->last;
    if (to->last != NULL)
        to->last->next = from->first;
    else
        to->first = from->first;
    to->last = from->last;
    from->first = from->last = NULL;
}

/* The node must be in the list. */
static inline void list_remove(list *from, list_node *removed) {
    if (removed->prev != NULL)
        removed->prev->next = removed->next;
    else
        from->first = removed->next;
    if (removed->next != NULL)
        removed->next->prev = removed->prev;
    else
        from->last = removed->prev;
    removed->prev = removed->next = NULL;
}

static inline bool list_is_empty(const list *of) {
    return of->first == NULL;
}

#endif
