/* SPDX-License-Identifier: BSD-3-Clause */
/* work.h - what has to be done without a command: leases, sessions and waits that end, and locks
 * that became free behind our back. */
#ifndef DLOCK_WORK_H
#define DLOCK_WORK_H

#include "redismodule.h"
#include <stdint.h>

/* What the alarm of server.h runs. Returns when it is due again. */
int64_t work_run(RedisModuleCtx *ctx);

#endif
