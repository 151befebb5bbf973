/* SPDX-License-Identifier: BSD-3-Clause */
/* info_command.h - DLOCK.INFO. */
#ifndef DLOCK_INFO_COMMAND_H
#define DLOCK_INFO_COMMAND_H

#include "redismodule.h"

/* DLOCK.INFO key [WAITERS n] */
int cmd_info(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

#endif
