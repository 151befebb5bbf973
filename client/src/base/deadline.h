/* SPDX-License-Identifier: BSD-3-Clause */
/* deadline.h - points in time, in microseconds of one clock (clock.h). Pure. */
#pragma once

#include <stdint.h>

#define DEADLINE_NEVER INT64_MAX

/* DEADLINE_NEVER for a negative wait. */
static inline int64_t deadline_after_ms(int64_t now_us, int64_t wait_ms) {
    if (wait_ms < 0 || wait_ms > (DEADLINE_NEVER - now_us) / 1000) return DEADLINE_NEVER;
    return now_us + wait_ms * 1000;
}

static inline int64_t deadline_earlier(int64_t one_us, int64_t other_us) {
    return one_us < other_us ? one_us : other_us;
}

/* 0 once the deadline has come. */
static inline int64_t deadline_left_us(int64_t deadline_us, int64_t now_us) {
    if (deadline_us == DEADLINE_NEVER) return DEADLINE_NEVER;
    return deadline_us > now_us ? deadline_us - now_us : 0;
}
