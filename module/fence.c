/* SPDX-License-Identifier: BSD-3-Clause */
/* fence.c - see fence.h. It cannot overflow: nothing at or above LOCK_FENCE_LIMIT is ever
 * raised. */
#include "fence.h"

static int64_t last;

int64_t fence_next(int64_t now_us) {
    last = now_us > last ? now_us : last + 1;
    return last;
}

void fence_raise(int64_t seen) {
    if (seen > last) last = seen;
}

int64_t fence_last(void) {
    return last;
}
