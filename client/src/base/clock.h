/* SPDX-License-Identifier: BSD-3-Clause */
/* clock.h - time and chance behind a table of functions, so that a unit test of waiting takes no
 * time. */
#pragma once

#include <stdint.h>

typedef struct clock_source clock_source;

struct clock_source {
    /* Microseconds on CLOCK_BOOTTIME, which nobody can set and which counts suspend. */
    int64_t (*now_us)(const clock_source *clock);
    /* Microseconds of the wall clock, for log lines and proposed fences only. */
    int64_t (*unix_us)(const clock_source *clock);
    uint64_t (*random_bits)(const clock_source *clock);
    /* NULL: time passes. Else a fake clock: called instead of sleeping. */
    void (*skip_to)(const clock_source *clock, int64_t until_us);
};

const clock_source *clock_system(void);

static inline int64_t clock_now_us(const clock_source *clock) {
    return clock->now_us(clock);
}
