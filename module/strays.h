/* SPDX-License-Identifier: BSD-3-Clause */
/* strays.h - locks that live on under a name that nobody told us.
 *
 * RENAME and MOVE take a lock away from its name as DEL does; the module learns of that, but not of
 * the new name. Its lease must end there all the same. So when a lock was taken away and its value
 * is still alive a second later, the keyspace is searched for it, in portions. */
#ifndef DLOCK_STRAYS_H
#define DLOCK_STRAYS_H

#include "redismodule.h"
#include <stdint.h>

/* A value has lost its lease entry: search for it, unless it is freed soon. */
void strays_search_soon(void);

/* Searches until that time, if a search is due. */
void strays_run(RedisModuleCtx *ctx, int64_t until_us);

/* When to go on, on server_boot_us(). */
int64_t strays_due(void);

#endif
