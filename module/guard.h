/* SPDX-License-Identifier: BSD-3-Clause */
/* guard.h - DLOCK.GUARD: a command that runs only if the token holds the lock. */
#ifndef DLOCK_GUARD_H
#define DLOCK_GUARD_H

#include "redismodule.h"
#include <stdbool.h>

/* DLOCK.GUARD key token command [arg ...] */
int guard_run(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

/* Is the running command the one inside DLOCK.GUARD? */
bool guard_is_running(void);

#endif
