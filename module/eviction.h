/* SPDX-License-Identifier: BSD-3-Clause */
/* eviction.h - can this server throw locks away to save memory?
 *
 * No API protects a key from eviction, and an evicted lock is two holders. So we say it in the
 * log, at load and whenever the configuration changes, and in INFO dlock. */
#ifndef DLOCK_EVICTION_H
#define DLOCK_EVICTION_H

#include "redismodule.h"
#include <stdbool.h>

/* True with a maxmemory and any maxmemory-policy but noeviction. */
bool eviction_threatens_locks(void);

/* Warns if the danger is new since the last call. */
void eviction_warn(RedisModuleCtx *ctx);

#endif
