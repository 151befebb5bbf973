/* SPDX-License-Identifier: BSD-3-Clause */
/* failures.h - the servers that gave no result, of several independent ones. A query succeeds if a
 * majority of the servers replies; then the library's why has a line for each of the others. */
#ifndef DLOCK_CLI_FAILURES_H
#define DLOCK_CLI_FAILURES_H

#include "request.h"

enum { FAILURES_SIZE = REQUEST_URLS_MAX * 300 }; /* room for why */

/* A line: the server, a colon, a blank, the cause. Points into why. */
typedef struct failure {
    const char *line;
    size_t length, server_length;
} failure;

/* Reads the line at the front of *rest and moves *rest behind it. False: no more. */
bool failures_next(const char **rest, failure *failure);

int failures_count(const char *why);

#endif
