/* SPDX-License-Identifier: BSD-3-Clause */
/* deadline.h - points in time, in microseconds of one clock (environment.h). Pure. */
#ifndef DLOCK_DEADLINE_H
#define DLOCK_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>

#define DEADLINE_NEVER INT64_MAX

/* wait_ms from now; a negative wait is for ever. */
int64_t deadline_after_ms(int64_t now_us, int64_t wait_ms);

int64_t deadline_earlier(int64_t one_us, int64_t other_us);

/* 0 once it is reached. */
int64_t deadline_left_us(int64_t deadline_us, int64_t now_us);

#endif
