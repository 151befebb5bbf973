/* SPDX-License-Identifier: BSD-3-Clause */
/* guard_rules.h - which commands DLOCK.GUARD runs. */
#ifndef DLOCK_GUARD_RULES_H
#define DLOCK_GUARD_RULES_H

#include "redismodule.h"
#include <stdbool.h>

#define GUARD_COMMAND "dlock.guard"

void guard_rules_init(void);

/* False: the error is already sent. needs_keys: the command reads or writes data, so in a cluster
 * it has to name keys. A command that Redis does not know is allowed: Redis then says so. */
bool guard_rules_allow_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                                bool *needs_keys);

/* Another module came or went, and commands with it. */
void guard_rules_forget(void);

#endif
