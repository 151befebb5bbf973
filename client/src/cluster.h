/* SPDX-License-Identifier: BSD-3-Clause */
/* cluster.h - the backend for a Redis Cluster: a lock is at the node that has its key's slot. */
#ifndef DLOCK_CLUSTER_H
#define DLOCK_CLUSTER_H

#include "backend.h"
#include "deployment.h"
#include "environment.h"
#include "server.h"

/* NULL: no memory. */
backend *cluster_new(const deployment *where, const server_limits *limits, const environment *env);

#endif
