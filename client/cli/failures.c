/* SPDX-License-Identifier: BSD-3-Clause */
/* failures.c - see failures.h. Pure. */
#include "failures.h"

#include <string.h>

bool failures_next(const char **rest, failure *failure) {
    const char *line = *rest;
    size_t length = strcspn(line, "\n");
    const char *colon = memmem(line, length, ": ", 2);
    if (length == 0) return false;
    *rest = line + length + (line[length] == '\n' ? 1 : 0);
    *failure = (struct failure){line, length, colon != NULL ? (size_t)(colon - line) : length};
    return true;
}

int failures_count(const char *why) {
    int count = 0;
    failure failure;
    while (failures_next(&why, &failure))
        count++;
    return count;
}
