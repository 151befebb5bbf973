/* SPDX-License-Identifier: BSD-3-Clause */
/* heap.c - see heap.h.
 *
 * Invariant: no node has a lower key than its parent. The parent of index i is (i - 1) / 2.
 *
 * A removal leaves a gap, and the next node that is added starts there. Most locks are short: one
 * lease ends early, the next one has nearly the same end, and neither moves any other. Only a
 * second removal in a row fills the gap, with the last node of the array. */
#include "heap.h"

#include <stdlib.h>

enum { INITIAL_CAPACITY = 8, CAPACITY_KEPT = 64 };

void *(*heap_resize)(void *memory, size_t size) = realloc;
void (*heap_release)(void *memory) = free;

static void put(heap *heap, size_t place, heap_node *node) {
    heap->nodes[place] = node;
    node->place = place;
}

/* Moves the node from place towards the root, past all higher keys. */
static void rise(heap *heap, size_t place, heap_node *node) {
    while (place > 0) {
        size_t parent = (place - 1) / 2;
        if (heap->nodes[parent]->key <= node->key) break;
        put(heap, place, heap->nodes[parent]);
        place = parent;
    }
    put(heap, place, node);
}

/* Moves the node from place away from the root, past all lower keys. */
static void sink(heap *heap, size_t place, heap_node *node) {
    for (;;) {
        size_t child = 2 * place + 1;
        if (child >= heap->count) break;
        if (child + 1 < heap->count && heap->nodes[child + 1]->key < heap->nodes[child]->key)
            child++;
        if (node->key <= heap->nodes[child]->key) break;
        put(heap, place, heap->nodes[child]);
        place = child;
    }
    put(heap, place, node);
}

/* Puts the node at an unused place, from where the invariant moves it up or down. */
static void settle(heap *heap, size_t place, heap_node *node) {
    if (place > 0 && node->key < heap->nodes[(place - 1) / 2]->key)
        rise(heap, place, node);
    else
        sink(heap, place, node);
}

static void make_room(heap *heap) {
    if (heap->count < heap->capacity) return;
    heap->capacity = heap->capacity == 0 ? INITIAL_CAPACITY : heap->capacity * 2;
    heap->nodes = heap_resize(heap->nodes, sizeof(heap->nodes[0]) * heap->capacity);
}

void heap_add(heap *heap, heap_node *added) {
    if (heap->gap == 0) {
        make_room(heap);
        rise(heap, heap->count++, added);
        return;
    }
    size_t place = heap->gap - 1;
    heap->gap = 0;
    heap->count++;
    settle(heap, place, added);
}

/* Moves the last node of the array to the gap. With a gap, the array has count + 1 places, so the
 * last node is at index count. */
static void fill_gap(heap *heap) {
    size_t place = heap->gap - 1;
    heap->gap = 0;
    settle(heap, place, heap->nodes[heap->count]);
}

/* The last place needs no gap. An empty heap keeps a small array. */
void heap_remove(heap *heap, heap_node *removed) {
    if (heap->gap != 0) fill_gap(heap);
    heap->count--;
    if (removed->place < heap->count) heap->gap = removed->place + 1;
    if (heap->count > 0 || heap->capacity <= CAPACITY_KEPT) return;
    heap_release(heap->nodes);
    heap->nodes = NULL;
    heap->capacity = 0;
}

/* Below a gap at the root, the lowest key is at one of the two children. */
heap_node *heap_first(const heap *heap) {
    if (heap->count == 0) return NULL;
    if (heap->gap != 1) return heap->nodes[0];
    heap_node *left = heap->nodes[1];
    if (heap->count == 1) return left;
    return heap->nodes[2]->key < left->key ? heap->nodes[2] : left;
}

/* Places whose parents are found already: the lowest of them is found next. */
typedef struct frontier {
    const heap *heap;
    size_t end; /* the places of all nodes are below */
    size_t *places;
    size_t count;
} frontier;

static int64_t key_at(const frontier *frontier, size_t i) {
    return frontier->heap->nodes[frontier->places[i]]->key;
}

static void frontier_add(frontier *frontier, size_t place) {
    if (place >= frontier->end) return;
    if (place + 1 == frontier->heap->gap) {
        frontier_add(frontier, 2 * place + 1);
        frontier_add(frontier, 2 * place + 2);
        return;
    }
    size_t i = frontier->count++;
    frontier->places[i] = place;
    for (; i > 0 && key_at(frontier, i) < key_at(frontier, (i - 1) / 2); i = (i - 1) / 2) {
        frontier->places[i] = frontier->places[(i - 1) / 2];
        frontier->places[(i - 1) / 2] = place;
    }
}

static size_t frontier_take(frontier *frontier) {
    size_t taken = frontier->places[0], moved = frontier->places[--frontier->count];
    frontier->places[0] = moved;
    for (size_t i = 0, child; (child = 2 * i + 1) < frontier->count; i = child) {
        if (child + 1 < frontier->count && key_at(frontier, child + 1) < key_at(frontier, child))
            child++;
        if (key_at(frontier, i) <= key_at(frontier, child)) break;
        frontier->places[i] = frontier->places[child];
        frontier->places[child] = moved;
    }
    return taken;
}

size_t heap_lowest(const heap *heap, size_t max, heap_node **found) {
    if (max > heap->count) max = heap->count;
    if (max == 0) return 0;
    frontier frontier = {.heap = heap, .end = heap->count + (heap->gap != 0)};
    /* Each node found makes room for one of its two children; a gap adds one place. */
    frontier.places = heap_resize(NULL, sizeof(size_t) * (max + 3));
    frontier_add(&frontier, 0);
    for (size_t i = 0; i < max; i++) {
        size_t place = frontier_take(&frontier);
        found[i] = heap->nodes[place];
        if (i + 1 == max) break;
        frontier_add(&frontier, 2 * place + 1);
        frontier_add(&frontier, 2 * place + 2);
    }
    heap_release(frontier.places);
    return max;
}
