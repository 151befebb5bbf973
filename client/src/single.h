/* SPDX-License-Identifier: BSD-3-Clause */
/* single.h - the backend for one server with the dlock module. */
#ifndef DLOCK_SINGLE_H
#define DLOCK_SINGLE_H

#include "backend.h"
#include "environment.h"
#include "server.h"

/* NULL: no memory. */
backend *single_new(const url *at, const server_limits *limits, const environment *env);

#endif
