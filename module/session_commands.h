/* SPDX-License-Identifier: BSD-3-Clause */
/* session_commands.h - the handlers of DLOCK.SESSION, DLOCK.WATCH and DLOCK.UNWATCH. */
#ifndef DLOCK_SESSION_COMMANDS_H
#define DLOCK_SESSION_COMMANDS_H

#include "redismodule.h"

int cmd_session(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int cmd_watch(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
int cmd_unwatch(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

#endif
