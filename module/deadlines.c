/* SPDX-License-Identifier: BSD-3-Clause */
/* deadlines.c - see deadlines.h.
 *
 * Invariant: no deadline is earlier than its parent. The parent of index i is (i - 1) / 2. */
#include "deadlines.h"

static void put(deadlines *times, size_t place, deadline *entry) {
    times->heap[place] = entry;
    entry->place = place;
}

/* Moves entry from place towards the root, past all later deadlines. */
static void rise(deadlines *times, size_t place, deadline *entry) {
    while (place > 0) {
        size_t parent = (place - 1) / 2;
        if (times->heap[parent]->at_us <= entry->at_us) break;
        put(times, place, times->heap[parent]);
        place = parent;
    }
    put(times, place, entry);
}

/* Moves entry from place away from the root, past all earlier deadlines. */
static void sink(deadlines *times, size_t place, deadline *entry) {
    for (;;) {
        size_t child = 2 * place + 1;
        if (child >= times->count) break;
        if (child + 1 < times->count && times->heap[child + 1]->at_us < times->heap[child]->at_us)
            child++;
        if (entry->at_us <= times->heap[child]->at_us) break;
        put(times, place, times->heap[child]);
        place = child;
    }
    put(times, place, entry);
}

void deadlines_add(deadlines *times, deadline *added) {
    rise(times, times->count++, added);
}

void deadlines_remove(deadlines *times, deadline *removed) {
    deadline *last = times->heap[--times->count];
    if (last == removed) return;
    if (last->at_us < removed->at_us)
        rise(times, removed->place, last);
    else
        sink(times, removed->place, last);
}

deadline *deadlines_first(const deadlines *times) {
    return times->count == 0 ? NULL : times->heap[0];
}
