/* SPDX-License-Identifier: BSD-3-Clause */
/* heap.c - see heap.h.
 *
 * A pairing heap: a tree in which no node is due before the parent. The children of a node are a
 * list: node->child is the first, sibling the next; previous leads back, from the first child to
 * the parent. Adding joins two trees in constant time; removing joins the children of the node in
 * logarithmic time on average. Nodes with equal due times leave in no particular order. The
 * sibling of a root is stale. */
#include "base/heap.h"

/* Joins two trees: the later root becomes the first child of the earlier root. */
static heap_node *link_roots(heap_node *one, heap_node *other) {
    if (one == NULL) return other;
    if (other == NULL) return one;
    heap_node *first = other->due_us < one->due_us ? other : one;
    heap_node *later = first == one ? other : one;
    later->previous = first;
    later->sibling = first->child;
    if (first->child != NULL) first->child->previous = later;
    first->child = later;
    return first;
}

/* Joins the node and all siblings after the node, without recursion: first pairs from left to
 * right, stacked by their sibling pointers, then the pairs from right to left. */
static heap_node *link_siblings(heap_node *node) {
    heap_node *pairs = NULL, *root = NULL, *next;
    for (; node != NULL; node = next) {
        heap_node *second = node->sibling;
        next = second == NULL ? NULL : second->sibling;
        heap_node *pair = link_roots(node, second);
        pair->sibling = pairs;
        pairs = pair;
    }
    for (; pairs != NULL; pairs = next) {
        next = pairs->sibling;
        root = link_roots(root, pairs);
    }
    return root;
}

/* Takes the node, with all children, out of the parent's list. */
static void cut_from_heap(heap_node *node) {
    heap_node *previous = node->previous;
    if (previous->child == node)
        previous->child = node->sibling;
    else
        previous->sibling = node->sibling;
    if (node->sibling != NULL) node->sibling->previous = previous;
}

static void set_root(heap *heap, heap_node *root) {
    heap->root = root;
    if (root != NULL) root->previous = root;
}

void heap_add(heap *heap, heap_node *node, int64_t due_us) {
    *node = (heap_node){.due_us = due_us, .previous = node};
    set_root(heap, link_roots(heap->root, node));
}

void heap_remove(heap *heap, heap_node *node) {
    if (!heap_has(node)) return;
    heap_node *children = link_siblings(node->child);
    if (node == heap->root) {
        set_root(heap, children);
    } else {
        cut_from_heap(node);
        set_root(heap, link_roots(heap->root, children));
    }
    *node = (heap_node){.due_us = node->due_us};
}
