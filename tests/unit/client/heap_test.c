/* SPDX-License-Identifier: BSD-3-Clause */
/* heap_test.c - things with a due time. */
#include "heap.h"

#include "unit.h"

enum { MANY = 500, ROUNDS = 200 };

static heap all;
static heap_node nodes[MANY];

static void begin(void) {
    memset(nodes, 0, sizeof(nodes));
    CHECK(heap_reserve(&all, MANY));
}

static void end(void) {
    heap_free(&all);
}

static void an_empty_one_has_no_first(void) {
    begin();
    CHECK(heap_first(&all) == NULL);
    end();
}

static void the_earliest_is_the_first(void) {
    begin();
    heap_add(&all, &nodes[0], 30);
    heap_add(&all, &nodes[1], 10);
    heap_add(&all, &nodes[2], 20);
    CHECK(heap_first(&all) == &nodes[1]);
    heap_remove(&all, &nodes[1]);
    CHECK(heap_first(&all) == &nodes[2]);
    end();
}

static void one_that_is_in_no_heap_can_be_removed(void) {
    begin();
    heap_remove(&all, &nodes[0]);
    heap_add(&all, &nodes[0], 1);
    heap_remove(&all, &nodes[0]);
    heap_remove(&all, &nodes[0]);
    CHECK_EQUAL((int64_t)all.count, 0);
    end();
}

static void it_keeps_what_is_in_it_when_it_grows(void) {
    memset(nodes, 0, sizeof(nodes));
    for (size_t i = 0; i < MANY; i++) {
        CHECK(heap_reserve(&all, i + 1));
        heap_add(&all, &nodes[i], (int64_t)(MANY - i));
    }
    for (size_t i = MANY; i-- > 0;) {
        CHECK(heap_first(&all) == &nodes[i]);
        heap_remove(&all, &nodes[i]);
    }
    end();
}

/* A slow way to know which one must be the first. */
static int64_t earliest_us(void) {
    int64_t earliest = INT64_MAX;
    for (size_t i = 0; i < MANY; i++)
        if (nodes[i].place != 0 && nodes[i].due_us < earliest) earliest = nodes[i].due_us;
    return earliest;
}

static void whatever_is_added_and_removed_the_first_is_the_earliest(void) {
    begin();
    for (int i = 0; i < ROUNDS * MANY; i++) {
        heap_node *any = &nodes[unit_random() % MANY];
        if (any->place != 0)
            heap_remove(&all, any);
        else
            heap_add(&all, any, (int64_t)(unit_random() % 1000));
        if (i % MANY != 0) continue;
        const heap_node *first = heap_first(&all);
        CHECK_EQUAL(first == NULL ? INT64_MAX : first->due_us, earliest_us());
    }
    end();
}

int main(void) {
    UNIT_RUN(an_empty_one_has_no_first);
    UNIT_RUN(the_earliest_is_the_first);
    UNIT_RUN(one_that_is_in_no_heap_can_be_removed);
    UNIT_RUN(it_keeps_what_is_in_it_when_it_grows);
    UNIT_RUN(whatever_is_added_and_removed_the_first_is_the_earliest);
    return unit_summary();
}
