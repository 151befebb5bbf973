/* SPDX-License-Identifier: BSD-3-Clause */
/* list.h - a doubly linked list whose nodes are members of the linked structs. Pure.
 *
 *     list_each(connection, conn, &server->parked, node)
 *         connection_close(conn); */
#pragma once
#include <stdbool.h>
#include <stddef.h>

typedef struct list_node {
    struct list_node *previous, *next; /* both NULL: the node is in no list */
} list_node;

/* A ring that includes a node of the list itself; list_init() before anything else. */
typedef struct list {
    list_node ring;
} list;

#define container_of(pointer, type, member)                                                        \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

static inline void list_init(list *list) {
    list->ring.previous = list->ring.next = &list->ring;
}

static inline bool list_is_empty(const list *list) {
    return list->ring.next == &list->ring;
}

static inline bool list_has(const list_node *node) {
    return node->next != NULL;
}

static inline void list_append(list *list, list_node *node) {
    list_node *last = list->ring.previous;
    node->previous = last;
    node->next = &list->ring;
    last->next = list->ring.previous = node;
}

/* Does nothing to a node that is in no list. */
static inline void list_remove(list_node *node) {
    if (node->next == NULL) return;
    node->previous->next = node->next;
    node->next->previous = node->previous;
    node->previous = node->next = NULL;
}

/* NULL: empty. */
static inline list_node *list_first(const list *list) {
    return list_is_empty(list) ? NULL : list->ring.next;
}

static inline list_node *list_last(const list *list) {
    return list_is_empty(list) ? NULL : list->ring.previous;
}

/* NULL: the node was the last. */
static inline list_node *list_next(const list *list, const list_node *node) {
    return node->next == &list->ring ? NULL : node->next;
}

/* As container_of(); NULL for NULL. */
#define list_owner(node, type, member) ((type *)list_outer(node, offsetof(type, member)))

static inline void *list_outer(list_node *node, size_t offset) {
    return node == NULL ? NULL : (char *)node - offset;
}

/* A loop over the structs of the list. The body may remove the struct from the list. */
#define list_each(type, each, list, member)                                                        \
    for (type *each = list_owner(list_first(list), type, member), *each##_next;                    \
         each != NULL &&                                                                           \
         (each##_next = list_owner(list_next(list, &each->member), type, member), true);           \
         each = each##_next)
