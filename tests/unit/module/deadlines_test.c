/* SPDX-License-Identifier: BSD-3-Clause */
/* deadlines_test.c - the heap of deadlines. */
#include "deadlines.h"

#include "unit.h"

enum { MANY = 1000 };

static deadline *heap[MANY];
static deadline entries[MANY];

/* Marks the places that are in use, and the number of them. */
static size_t places(const deadlines *all, bool is_used[MANY + 1]) {
    size_t used = all->count + (all->gap != 0);
    for (size_t i = 0; i < used; i++)
        is_used[i] = i + 1 != all->gap;
    return used;
}

static void check_places(const deadlines *all) {
    bool is_used[MANY + 1];
    size_t used = places(all, is_used);
    int64_t earliest = INT64_MAX;
    for (size_t i = 0; i < used; i++) {
        if (!is_used[i]) continue;
        CHECK(all->heap[i]->place == i);
        for (size_t above = i; above > 0;) {
            above = (above - 1) / 2;
            if (is_used[above]) CHECK(all->heap[above]->at_us <= all->heap[i]->at_us);
        }
        if (all->heap[i]->at_us < earliest) earliest = all->heap[i]->at_us;
    }
    if (used > 0) CHECK_EQUAL(deadlines_first(all)->at_us, earliest);
}

static void of_none_there_is_no_first(void) {
    deadlines all = {.heap = heap};
    CHECK(deadlines_first(&all) == NULL);
}

static void the_only_one_is_the_first(void) {
    deadlines all = {.heap = heap};
    deadline only = {.at_us = 5};
    deadlines_add(&all, &only);
    CHECK(deadlines_first(&all) == &only);
    deadlines_remove(&all, &only);
    CHECK(deadlines_first(&all) == NULL);
}

static void they_leave_in_the_order_of_time(void) {
    deadlines all = {.heap = heap};
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

static void the_next_one_takes_the_place_of_one_that_left(void) {
    deadlines all = {.heap = heap};
    for (size_t i = 0; i < 7; i++) {
        entries[i].at_us = 100;
        deadlines_add(&all, &entries[i]);
    }
    deadline early = {.at_us = 5};
    deadlines_add(&all, &early);
    deadlines_remove(&all, &early);
    CHECK(deadlines_first(&all)->at_us == 100);
    deadlines_add(&all, &early);
    CHECK(deadlines_first(&all) == &early);
    check_places(&all);
}

static void two_that_leave_in_a_row_leave_the_earliest_in_front(void) {
    deadlines all = {.heap = heap};
    for (size_t i = 0; i < 3; i++) {
        entries[i].at_us = (int64_t)i;
        deadlines_add(&all, &entries[i]);
    }
    deadlines_remove(&all, &entries[0]);
    CHECK(deadlines_first(&all) == &entries[1]);
    deadlines_remove(&all, &entries[1]);
    CHECK(deadlines_first(&all) == &entries[2]);
    deadlines_remove(&all, &entries[2]);
    CHECK(deadlines_first(&all) == NULL);
}

static void any_may_leave_at_any_time(void) {
    deadlines all = {.heap = heap};
    bool is_in[MANY] = {false};
    for (int i = 0; i < 20000; i++) {
        size_t number = unit_random() % (i < 10000 ? MANY : 8);
        if (is_in[number]) {
            deadlines_remove(&all, &entries[number]);
        } else {
            entries[number].at_us = (int64_t)(unit_random() % 100);
            deadlines_add(&all, &entries[number]);
        }
        is_in[number] = !is_in[number];
        check_places(&all);
    }
}

int main(void) {
    UNIT_RUN(of_none_there_is_no_first);
    UNIT_RUN(the_only_one_is_the_first);
    UNIT_RUN(they_leave_in_the_order_of_time);
    UNIT_RUN(the_next_one_takes_the_place_of_one_that_left);
    UNIT_RUN(two_that_leave_in_a_row_leave_the_earliest_in_front);
    UNIT_RUN(any_may_leave_at_any_time);
    return unit_summary();
}
