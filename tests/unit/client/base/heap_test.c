/* SPDX-License-Identifier: BSD-3-Clause */
/* heap_test.c - nodes with a due time. */
#include "base/heap.h"

#include "unit.h"

enum { MANY = 500, ROUNDS = 200 };

static heap all;
static heap_node nodes[MANY];

static void begin(void) {
    memset(nodes, 0, sizeof(nodes));
    all = (heap){0};
}

TEST(an_empty_heap_has_no_first_node) {
    CHECK(heap_first(&all) == NULL);
}

TEST(the_earliest_node_is_the_first) {
    heap_add(&all, &nodes[0], 30);
    heap_add(&all, &nodes[1], 10);
    heap_add(&all, &nodes[2], 20);
    CHECK(heap_first(&all) == &nodes[1]);
    heap_remove(&all, &nodes[1]);
    CHECK(heap_first(&all) == &nodes[2]);
    heap_remove(&all, &nodes[2]);
    CHECK(heap_first(&all) == &nodes[0]);
}

TEST(a_node_that_is_in_no_heap_can_be_removed) {
    heap_remove(&all, &nodes[0]);
    heap_add(&all, &nodes[0], 1);
    heap_remove(&all, &nodes[0]);
    heap_remove(&all, &nodes[0]);
    CHECK(heap_first(&all) == NULL);
}

TEST(nodes_can_leave_from_the_middle) {
    for (int i = 0; i < 10; i++)
        heap_add(&all, &nodes[i], i);
    for (int i = 8; i > 0; i--)
        heap_remove(&all, &nodes[i]);
    CHECK(heap_first(&all) == &nodes[0]);
    heap_remove(&all, &nodes[0]);
    CHECK(heap_first(&all) == &nodes[9]);
    heap_remove(&all, &nodes[9]);
    CHECK(heap_first(&all) == NULL);
}

TEST(nodes_leave_in_order_however_they_came) {
    for (size_t i = 0; i < MANY; i++)
        heap_add(&all, &nodes[i], (int64_t)(unit_random() % 100));
    int64_t last_us = 0;
    for (size_t i = 0; i < MANY; i++) {
        heap_node *first = heap_first(&all);
        CHECK(first != NULL && first->due_us >= last_us);
        if (first == NULL) return;
        last_us = first->due_us;
        heap_remove(&all, first);
    }
    CHECK(heap_first(&all) == NULL);
}

/* A slow way to find the earliest node. */
static int64_t earliest_us(void) {
    int64_t earliest = INT64_MAX;
    for (size_t i = 0; i < MANY; i++)
        if (heap_has(&nodes[i]) && nodes[i].due_us < earliest) earliest = nodes[i].due_us;
    return earliest;
}

TEST(the_first_node_is_the_earliest_after_any_changes) {
    for (int i = 0; i < ROUNDS * MANY; i++) {
        heap_node *any = &nodes[unit_random() % MANY];
        if (heap_has(any))
            heap_remove(&all, any);
        else
            heap_add(&all, any, (int64_t)(unit_random() % 1000));
        if (i % 50 != 0) continue;
        const heap_node *first = heap_first(&all);
        CHECK_EQUAL(first == NULL ? INT64_MAX : first->due_us, earliest_us());
    }
}

int main(void) {
    return unit_main(begin, NULL);
}
