/* SPDX-License-Identifier: BSD-3-Clause */
/* caller.h - the client of the running command: what the command may do with it. */
#ifndef DLOCK_CALLER_H
#define DLOCK_CALLER_H

#include "redismodule.h"
#include <stdbool.h>

/* Does the client have a connection, whose end the module will hear of? */
bool caller_has_connection(RedisModuleCtx *ctx);

/* May the reply come later? */
bool caller_may_block(RedisModuleCtx *ctx);

#endif
