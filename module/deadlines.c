/* SPDX-License-Identifier: BSD-3-Clause */
/* deadlines.c - see deadlines.h.
 *
 * Invariant: no deadline is earlier than its parent. The parent of index i is (i - 1) / 2.
 *
 * A removal leaves a gap, and the next deadline that is added starts there. Most locks are short:
 * one lease ends early, the next one has nearly the same end, and neither moves any other. Only a
 * second removal in a row fills the gap, with the last deadline of the array. */
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

/* Puts entry at an unused place, from where the invariant moves it up or down. */
static void settle(deadlines *times, size_t place, deadline *entry) {
    if (place > 0 && entry->at_us < times->heap[(place - 1) / 2]->at_us)
        rise(times, place, entry);
    else
        sink(times, place, entry);
}

void deadlines_add(deadlines *times, deadline *added) {
    if (times->gap == 0) {
        rise(times, times->count++, added);
        return;
    }
    size_t place = times->gap - 1;
    times->gap = 0;
    times->count++;
    settle(times, place, added);
}

/* While there is a gap, the last deadline stands behind the count of them. */
static void fill_gap(deadlines *times) {
    size_t place = times->gap - 1;
    times->gap = 0;
    settle(times, place, times->heap[times->count]);
}

/* The last place needs no gap. */
void deadlines_remove(deadlines *times, deadline *removed) {
    if (times->gap != 0) fill_gap(times);
    times->count--;
    if (removed->place < times->count) times->gap = removed->place + 1;
}

/* Below a gap at the root, the earliest is one of the two children. */
deadline *deadlines_first(const deadlines *times) {
    if (times->count == 0) return NULL;
    if (times->gap != 1) return times->heap[0];
    deadline *left = times->heap[1];
    if (times->count == 1) return left;
    return times->heap[2]->at_us < left->at_us ? times->heap[2] : left;
}
