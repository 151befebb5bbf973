/* SPDX-License-Identifier: BSD-3-Clause */
/* deadlines_test.c - the heap of deadlines. */
#include "deadlines.h"

#include "unit.h"

enum { MANY = 1000 };

static deadline *heap[MANY];
static deadline entries[MANY];

static void check_places(const deadlines *all) {
    for (size_t i = 0; i < all->count; i++) {
        CHECK(all->heap[i]->place == i);
        if (i > 0) CHECK(all->heap[(i - 1) / 2]->at_us <= all->heap[i]->at_us);
    }
}

static void of_none_there_is_no_first(void) {
    deadlines all = {heap, 0};
    CHECK(deadlines_first(&all) == NULL);
}

static void the_only_one_is_the_first(void) {
    deadlines all = {heap, 0};
    deadline only = {.at_us = 5};
    deadlines_add(&all, &only);
    CHECK(deadlines_first(&all) == &only);
    deadlines_remove(&all, &only);
    CHECK(deadlines_first(&all) == NULL);
}

static void they_leave_in_the_order_of_time(void) {
    deadlines all = {heap, 0};
    for (size_t i = 0; i < MANY; i++) {
        entries[i].at_us = (int64_t)(unit_random() % 500); /* so that some are equal */
        deadlines_add(&all, &entries[i]);
        check_places(&all);
    }
    int64_t before = 0;
    for (size_t left = MANY; left > 0; left--) {
        deadline *first = deadlines_first(&all);
        CHECK(first->at_us >= before);
        before = first->at_us;
        deadlines_remove(&all, first);
        CHECK_EQUAL((int64_t)all.count, (int64_t)left - 1);
    }
    CHECK(deadlines_first(&all) == NULL);
}

static void any_may_leave_at_any_time(void) {
    deadlines all = {heap, 0};
    for (int i = 0; i < 20000; i++) {
        bool is_adding = all.count == 0 || (all.count < MANY && unit_random() % 2 == 0);
        if (is_adding) {
            deadline *free_one = entries;
            while (free_one->place < all.count && all.heap[free_one->place] == free_one)
                free_one++;
            free_one->at_us = (int64_t)(unit_random() % 100);
            deadlines_add(&all, free_one);
        } else {
            deadlines_remove(&all, all.heap[unit_random() % all.count]);
        }
        check_places(&all);
        for (size_t j = 0; j < all.count; j++)
            CHECK(deadlines_first(&all)->at_us <= all.heap[j]->at_us);
    }
}

int main(void) {
    UNIT_RUN(of_none_there_is_no_first);
    UNIT_RUN(the_only_one_is_the_first);
    UNIT_RUN(they_leave_in_the_order_of_time);
    UNIT_RUN(any_may_leave_at_any_time);
    return unit_summary();
}
