/* SPDX-License-Identifier: BSD-3-Clause */
/* redlock.h - the backend for several independent servers with the dlock module: a lock is held by
 * whom a majority of them has granted it. */
#ifndef DLOCK_REDLOCK_H
#define DLOCK_REDLOCK_H

#include "backend.h"
#include "deployment.h"
#include "environment.h"
#include "server.h"

/* NULL: no memory. */
backend *redlock_new(const deployment *where, const server_limits *limits, const environment *env);

#endif
