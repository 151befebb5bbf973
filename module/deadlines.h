/* SPDX-License-Identifier: BSD-3-Clause */
/* deadlines.h - a set of deadlines; the earliest is known at once. Pure.
 *
 * A binary heap of pointers. Each deadline is a member of the object that it belongs to. The caller
 * provides the array, and makes room for count + 1 pointers before adding a deadline. */
#ifndef DLOCK_DEADLINES_H
#define DLOCK_DEADLINES_H

#include <stddef.h>
#include <stdint.h>

typedef struct deadline {
    int64_t at_us;
    size_t place; /* index in the heap; only for deadlines.c */
} deadline;

typedef struct deadlines {
    deadline **heap;
    size_t count; /* of deadlines */
    size_t gap;   /* an unused place among them, plus 1; 0: none; only for deadlines.c */
} deadlines;

void deadlines_add(deadlines *times, deadline *added);

/* removed must be in the heap. */
void deadlines_remove(deadlines *times, deadline *removed);

/* The earliest deadline, or NULL. */
deadline *deadlines_first(const deadlines *times);

#endif
