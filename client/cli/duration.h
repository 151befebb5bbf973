/* SPDX-License-Identifier: BSD-3-Clause */
/* duration.h - times as people write them: 500ms, 5s, 2m, 1h, 1d; a bare number is seconds.
 * Pure. */
#ifndef DLOCK_CLI_DURATION_H
#define DLOCK_CLI_DURATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DURATION_SIZE = 24 };

/* Up to a year. False: not a time. */
bool duration_parse(const char *text, int64_t *ms);

/* In at most five characters up to 99 days, for tables: 7ms, 1.5s, 12s, 3m20, 2h05, 4d. */
void duration_show(int64_t ms, char text[DURATION_SIZE]);

#endif
