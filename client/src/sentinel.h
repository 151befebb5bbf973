/* SPDX-License-Identifier: BSD-3-Clause */
/* sentinel.h - the backend for a master that sentinels watch over, and replace when it dies. */
#ifndef DLOCK_SENTINEL_H
#define DLOCK_SENTINEL_H

#include "backend.h"
#include "deployment.h"
#include "environment.h"
#include "server.h"

/* NULL: no memory. */
backend *sentinel_new(const deployment *where, const server_limits *limits, const environment *env);

#endif
