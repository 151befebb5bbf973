/* SPDX-License-Identifier: BSD-3-Clause */
/* heap_test.c - the heap. */
#include "heap.h"

#include "unit.h"
#include <stdlib.h>

enum { MANY = 1000 };

static heap_node entries[MANY];

/* Marks the places that are in use, and the number of them. */
static size_t places(const heap *all, bool is_used[MANY + 1]) {
    size_t used = all->count + (all->gap != 0);
    for (size_t i = 0; i < used; i++)
        is_used[i] = i + 1 != all->gap;
    return used;
}

static void check_places(const heap *all) {
    bool is_used[MANY + 1];
    size_t used = places(all, is_used);
    int64_t earliest = INT64_MAX;
    for (size_t i = 0; i < used; i++) {
        if (!is_used[i]) continue;
        CHECK(all->nodes[i]->place == i);
        for (size_t above = i; above > 0;) {
            above = (above - 1) / 2;
            if (is_used[above]) CHECK(all->nodes[above]->key <= all->nodes[i]->key);
        }
        if (all->nodes[i]->key < earliest) earliest = all->nodes[i]->key;
    }
    if (used > 0) CHECK_EQUAL(heap_first(all)->key, earliest);
}

TEST(of_none_there_is_no_first) {
    heap all = {.count = 0};
    CHECK(heap_first(&all) == NULL);
}

TEST(the_only_one_is_the_first) {
    heap all = {.count = 0};
    heap_node only = {.key = 5};
    heap_add(&all, &only);
    CHECK(heap_first(&all) == &only);
    heap_remove(&all, &only);
    CHECK(heap_first(&all) == NULL);
    free(all.nodes);
}

TEST(they_leave_in_the_order_of_time) {
    heap all = {.count = 0};
    for (size_t i = 0; i < MANY; i++) {
        entries[i].key = (int64_t)(unit_random() % 500); /* so that some are equal */
        heap_add(&all, &entries[i]);
        check_places(&all);
    }
    int64_t before = 0;
    for (size_t left = MANY; left > 0; left--) {
        heap_node *first = heap_first(&all);
        CHECK(first->key >= before);
        before = first->key;
        heap_remove(&all, first);
        CHECK_EQUAL(all.count, left - 1);
    }
    CHECK(heap_first(&all) == NULL);
    free(all.nodes);
}

TEST(the_next_one_takes_the_place_of_one_that_left) {
    heap all = {.count = 0};
    for (size_t i = 0; i < 7; i++) {
        entries[i].key = 100;
        heap_add(&all, &entries[i]);
    }
    heap_node early = {.key = 5};
    heap_add(&all, &early);
    heap_remove(&all, &early);
    CHECK(heap_first(&all)->key == 100);
    heap_add(&all, &early);
    CHECK(heap_first(&all) == &early);
    check_places(&all);
    free(all.nodes);
}

TEST(two_that_leave_in_a_row_leave_the_earliest_in_front) {
    heap all = {.count = 0};
    for (size_t i = 0; i < 3; i++) {
        entries[i].key = (int64_t)i;
        heap_add(&all, &entries[i]);
    }
    heap_remove(&all, &entries[0]);
    CHECK(heap_first(&all) == &entries[1]);
    heap_remove(&all, &entries[1]);
    CHECK(heap_first(&all) == &entries[2]);
    heap_remove(&all, &entries[2]);
    CHECK(heap_first(&all) == NULL);
    free(all.nodes);
}

/* The entry leaves if it is in, and comes with a new key if it is not. */
static void toggle(heap *all, bool *is_in, size_t number) {
    if (is_in[number]) {
        heap_remove(all, &entries[number]);
    } else {
        entries[number].key = (int64_t)(unit_random() % 100);
        heap_add(all, &entries[number]);
    }
    is_in[number] = !is_in[number];
}

TEST(any_may_leave_at_any_time) {
    heap all = {.count = 0};
    bool is_in[MANY] = {false};
    for (int i = 0; i < 3000; i++) {
        toggle(&all, is_in, unit_random() % (i < 2000 ? MANY : 8));
        check_places(&all);
    }
    free(all.nodes);
}

/* Compares the lowest with all of them, sorted. */
static void check_lowest(const heap *all, size_t max) {
    heap_node *found[MANY], *sorted[MANY];
    size_t count = heap_lowest(all, max, found), in_all = 0;
    bool is_used[MANY + 1];
    size_t used = places(all, is_used);
    for (size_t i = 0; i < used; i++) {
        if (!is_used[i]) continue;
        size_t place = in_all++;
        for (; place > 0 && sorted[place - 1]->key > all->nodes[i]->key; place--)
            sorted[place] = sorted[place - 1];
        sorted[place] = all->nodes[i];
    }
    CHECK_EQUAL(count, (max < in_all ? max : in_all));
    for (size_t i = 0; i < count; i++)
        CHECK_EQUAL(found[i]->key, sorted[i]->key);
}

TEST(the_lowest_are_found_in_order) {
    heap all = {.count = 0};
    bool is_in[MANY] = {false};
    check_lowest(&all, 10);
    for (int i = 0; i < 400; i++) {
        toggle(&all, is_in, unit_random() % (i < 300 ? 200 : 8));
        check_lowest(&all, unit_random() % 20);
        check_lowest(&all, MANY);
    }
    free(all.nodes);
}

int main(void) {
    return unit_main(NULL, NULL);
}
