/* SPDX-License-Identifier: BSD-3-Clause */
/* heap.h - things with a due time, the earliest first. A thing has a heap_node in it. Pure. */
#ifndef DLOCK_HEAP_H
#define DLOCK_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct heap_node {
    int64_t due_us;
    size_t place; /* 0: in no heap */
} heap_node;

typedef struct heap {
    heap_node **nodes; /* from 1 on */
    size_t count, capacity;
} heap;

void heap_free(heap *old);

/* Room for so many in all. False: no memory. */
bool heap_reserve(heap *in, size_t count);

/* There is room for it, and it is in no heap. */
void heap_add(heap *to, heap_node *added, int64_t due_us);

/* Nothing if it is in no heap. */
void heap_remove(heap *from, heap_node *removed);

/* NULL: empty. */
heap_node *heap_first(const heap *of);

#endif
