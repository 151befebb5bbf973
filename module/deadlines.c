/* SPDX-License-Identifier: BSD-3-Clause */
/* deadlines.c - see deadlines.h.
 *
 * Invariant: no entry is earlier than its parent, which is at half its index. */
#include "deadlines.h"

static void put(deadlines *all, size_t place, deadline *entry) {
    all->heap[place] = entry;
    entry->place = place;
}

/* Towards the first, past all that are later. */
static void rise(deadlines *all, size_t place, deadline *entry) {
    while (place > 0) {
        size_t parent = (place - 1) / 2;
        if (all->heap[parent]->at_us <= entry->at_us) break;
        put(all, place, all->heap[parent]);
        place = parent;
    }
    put(all, place, entry);
}

/* Away from the first, past all that are earlier. */
static void sink(deadlines *all, size_t place, deadline *entry) {
    for (;;) {
        size_t child = 2 * place + 1;
        if (child >= all->count) break;
        if (child + 1 < all->count && all->heap[child + 1]->at_us < all->heap[child]->at_us)
            child++;
        if (entry->at_us <= all->heap[child]->at_us) break;
        put(all, place, all->heap[child]);
        place = child;
    }
    put(all, place, entry);
}

void deadlines_add(deadlines *all, deadline *added) {
    rise(all, all->count++, added);
}

void deadlines_remove(deadlines *all, deadline *removed) {
    deadline *last = all->heap[--all->count];
    if (last == removed) return;
    if (last->at_us < removed->at_us)
        rise(all, removed->place, last);
    else
        sink(all, removed->place, last);
}

deadline *deadlines_first(const deadlines *all) {
    return all->count == 0 ? NULL : all->heap[0];
}
