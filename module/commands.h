/* SPDX-License-Identifier: BSD-3-Clause */
/* commands.h - the DLOCK.* commands. */
#ifndef DLOCK_COMMANDS_H
#define DLOCK_COMMANDS_H

#include "redismodule.h"

int commands_register(RedisModuleCtx *ctx);

#endif
