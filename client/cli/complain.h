/* SPDX-License-Identifier: BSD-3-Clause */
/* complain.h - one line on stderr, "dlock: ...". */
#ifndef DLOCK_CLI_COMPLAIN_H
#define DLOCK_CLI_COMPLAIN_H

#include "exit_code.h"

__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);

/* That of the status, with what and why before it: a cause, or "". The result is the exit code. */
exit_code complain_status(const char *what, dlock_status status, const char *cause);

#endif
