/* SPDX-License-Identifier: BSD-3-Clause */
/* complain.h - one line on stderr, "dlock: ...". Text from outside may be passed as it is: the line
 * is escaped. A reader of stderr that does not read delays a complaint only for a moment; then the
 * line is dropped, so that no full pipe and no stopped terminal keeps the tool from its work. */
#ifndef DLOCK_CLI_COMPLAIN_H
#define DLOCK_CLI_COMPLAIN_H

#include "request.h"

__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);

/* Complains about the status. request: for hints about its URL; context: the lock or the
 * subcommand; cause: the library's, or "". The result is the exit code. */
exit_code complain_status(const request *request, const char *context, dlock_status status,
                          const char *cause);

/* The same. rules: the ACL rules that the user needs, printed if permission is missing. */
exit_code complain_query(const request *request, const char *context, dlock_status status,
                         const char *cause, const char *rules);

#endif
