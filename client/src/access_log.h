/* SPDX-License-Identifier: BSD-3-Clause */
/* access_log.h - the handler that writes a line for every acquire and release, after it is done. */
#ifndef DLOCK_ACCESS_LOG_H
#define DLOCK_ACCESS_LOG_H

#include "claim.h"
#include "environment.h"
#include "log_file.h"

typedef struct access_log access_log;

/* One of both: a file, which is owned from now on, or the caller's function. NULL: no memory. */
access_log *access_log_new(log_file *file, dlock_log_fn sink, void *sink_arg,
                           const environment *env);
void access_log_free(access_log *old);

dlock_handler access_log_handler(access_log *of);

#endif
