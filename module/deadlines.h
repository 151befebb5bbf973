/* SPDX-License-Identifier: BSD-3-Clause */
/* deadlines.h - many moments in time, of which the next is known at once. Pure.
 *
 * A binary heap over entries that live in what they are a deadline of. The caller provides the
 * array, with room for one more than count before it adds. */
#ifndef DLOCK_DEADLINES_H
#define DLOCK_DEADLINES_H

#include <stddef.h>
#include <stdint.h>

typedef struct deadline {
    int64_t at_us;
    size_t place; /* of deadlines.c: its index while it is in the heap */
} deadline;

typedef struct deadlines {
    deadline **heap;
    size_t count;
} deadlines;

void deadlines_add(deadlines *all, deadline *added);

/* removed must be in there. */
void deadlines_remove(deadlines *all, deadline *removed);

/* The earliest, or NULL. */
deadline *deadlines_first(const deadlines *all);

#endif
