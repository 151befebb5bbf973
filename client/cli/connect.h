/* SPDX-License-Identifier: BSD-3-Clause */
/* connect.h - a client of the library as the request wants it. */
#ifndef DLOCK_CLI_CONNECT_H
#define DLOCK_CLI_CONNECT_H

#include "request.h"

/* The options borrow from the request. */
dlock_client_options connect_options(const request *request);

/* Checks the options without any I/O. False: complained. */
bool connect_check(const request *request);

/* How the lock is to be held, without renewal and session. */
dlock_lock_options connect_lock_options(const request *request);

/* NULL: complained, and *code is the exit code. */
dlock_client *connect_client(const request *request, int *code);

/* Says why a lock was not acquired, and returns the exit code. text: the holder if another holds
 * the lock, else the cause. The end of a wait is printed unless -q is given; the failure of
 * a single attempt, as of flock -n, only with -v. */
int connect_explain(const request *request, const char *name, dlock_status status,
                    const char *text);

#endif
