/* SPDX-License-Identifier: BSD-3-Clause */
/* heap.c - see heap.h. A binary heap; the parent of place n is n / 2. */
#include "heap.h"

#include <stdlib.h>

void heap_free(heap *old) {
    free(old->nodes);
    *old = (heap){0};
}

bool heap_reserve(heap *in, size_t count) {
    if (count < in->capacity) return true;
    size_t capacity = (count + 1) * 2;
    heap_node **grown = realloc(in->nodes, capacity * sizeof(grown[0]));
    if (grown == NULL) return false;
    in->nodes = grown;
    in->capacity = capacity;
    return true;
}

static void put(heap *in, heap_node *node, size_t place) {
    in->nodes[place] = node;
    node->place = place;
}

static void rise(heap *in, heap_node *node, size_t place) {
    for (; place > 1 && in->nodes[place / 2]->due_us > node->due_us; place /= 2)
        put(in, in->nodes[place / 2], place);
    put(in, node, place);
}

static void sink(heap *in, heap_node *node, size_t place) {
    for (;;) {
        size_t child = place * 2;
        if (child > in->count) break;
        if (child < in->count && in->nodes[child + 1]->due_us < in->nodes[child]->due_us) child++;
        if (in->nodes[child]->due_us >= node->due_us) break;
        put(in, in->nodes[child], place);
        place = child;
    }
    put(in, node, place);
}

void heap_add(heap *to, heap_node *added, int64_t due_us) {
    added->due_us = due_us;
    rise(to, added, ++to->count);
}

void heap_remove(heap *from, heap_node *removed) {
    size_t place = removed->place;
    if (place == 0) return;
    removed->place = 0;
    heap_node *last = from->nodes[from->count--];
    if (last == removed) return;
    if (place > 1 && from->nodes[place / 2]->due_us > last->due_us)
        rise(from, last, place);
    else
        sink(from, last, place);
}

heap_node *heap_first(const heap *of) {
    return of->count == 0 ? NULL : of->nodes[1];
}
