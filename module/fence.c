/* SPDX-License-Identifier: BSD-3-Clause */
/* fence.c - see fence.h. It does not overflow: it starts at FENCE_RAISE_LIMIT at most, and 2^61
 * grants later it is still below LOCK_FENCE_LIMIT. */
#include "fence.h"

static int64_t last;

int64_t fence_next(int64_t now_us) {
    last = now_us > last ? now_us : last + 1;
    return last;
}

void fence_raise(int64_t seen) {
    if (seen > last && seen < FENCE_RAISE_LIMIT) last = seen;
}

int64_t fence_last(void) {
    return last;
}
