/* SPDX-License-Identifier: BSD-3-Clause */
/* heap.h - nodes with a due time, the earliest first: a pairing heap whose nodes are members of the
 * caller's structs, so that heap_add() cannot fail. Pure. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* {0}: in no heap. */
typedef struct heap_node {
    int64_t due_us;
    struct heap_node *child, *sibling;
    struct heap_node *previous; /* the parent of a first child; a root: itself; NULL: in no heap */
} heap_node;

static inline bool heap_has(const heap_node *node) {
    return node->previous != NULL;
}

/* All zero: empty. */
typedef struct heap {
    heap_node *root;
} heap;

/* The node is in no heap. */
void heap_add(heap *heap, heap_node *node, int64_t due_us);

/* Does nothing to a node that is in no heap. */
void heap_remove(heap *heap, heap_node *node);

/* NULL: empty. */
static inline heap_node *heap_first(const heap *heap) {
    return heap->root;
}
