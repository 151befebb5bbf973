/* SPDX-License-Identifier: BSD-3-Clause */
/* wall_clock.h - unix time, the clock by which Redis expires keys. */
#ifndef DLOCK_WALL_CLOCK_H
#define DLOCK_WALL_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t wall_clock_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static inline int64_t wall_clock_ms(void) {
    return wall_clock_us() / 1000;
}

#endif
