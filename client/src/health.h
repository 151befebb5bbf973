/* SPDX-License-Identifier: BSD-3-Clause */
/* health.h - whether a server is worth the wait. One that failed several times in a row is left
 * alone for a moment, so that not everybody pays for it; then somebody tries it again. Pure; many
 * threads at once. */
#ifndef DLOCK_HEALTH_H
#define DLOCK_HEALTH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* All zero: it is well. */
typedef struct health {
    atomic_uint failures;          /* in a row, apart from those while it is left alone */
    atomic_int_least64_t until_us; /* it is left alone until then; 0: it is not */
} health;

/* False: whoever asks may try it, and tells what came of it. When the moment is over, that is one
 * of those who ask; to the others it goes on. */
bool health_is_left_alone(health *of, int64_t now_us);

void health_note(health *of, bool is_well, int64_t now_us);

#endif
