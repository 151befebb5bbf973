/* SPDX-License-Identifier: BSD-3-Clause */
/* heap.h - a set ordered by a number, mostly a time; the lowest number is known at once. Pure.
 *
 * A binary heap of pointers. Each node is a member of the object that it belongs to, so the cost
 * of the heap itself is one pointer per object. A heap of zeros is empty. */
#ifndef DLOCK_HEAP_H
#define DLOCK_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct heap_node {
    int64_t key;
    size_t place; /* index in the heap; only for heap.c */
} heap_node;

typedef struct heap {
    heap_node **nodes;
    size_t count;
    size_t capacity;
    size_t gap; /* an unused place among the nodes, plus 1; 0: none; only for heap.c */
} heap;

/* The memory of all heaps: realloc(3) that never fails, and free(3). Set once, before the first
 * use. */
extern void *(*heap_resize)(void *memory, size_t size);
extern void (*heap_release)(void *memory);

void heap_add(heap *heap, heap_node *added);

/* removed must be in the heap. */
void heap_remove(heap *heap, heap_node *removed);

/* The node with the lowest key, or NULL. */
heap_node *heap_first(const heap *heap);

/* Puts the nodes with the lowest keys into found, lowest first: at most max. Returns how many. The
 * cost depends on max, not on the size of the heap. */
size_t heap_lowest(const heap *heap, size_t max, heap_node **found);

#endif
