/* SPDX-License-Identifier: BSD-3-Clause */
/* work.h - work without a command: ends leases, sessions and waits, and settles locks that other
 * commands have freed. */
#ifndef DLOCK_WORK_H
#define DLOCK_WORK_H

#include "redismodule.h"
#include <stdint.h>

/* The alarm of server.h runs the work. Returns when the work is due again. */
int64_t work_run(RedisModuleCtx *ctx);

#endif
