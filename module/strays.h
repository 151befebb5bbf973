/* SPDX-License-Identifier: BSD-3-Clause */
/* strays.h - locks that live on under a name unknown to the module.
 *
 * RENAME and MOVE take a lock away from its name as DEL does. The module learns about the loss
 * of the old name, but not about the new name. The lease must end under the new name all the
 * same. So if the value is still alive a second later, the module searches the keyspace for it,
 * in portions. */
#ifndef DLOCK_STRAYS_H
#define DLOCK_STRAYS_H

#include "redismodule.h"
#include <stdint.h>

/* A value has lost its lease entry: starts a search, unless Redis frees the value soon. */
void strays_search_soon(void);

/* Searches until until_us, if a search is due. */
void strays_run(RedisModuleCtx *ctx, int64_t until_us);

/* When the search goes on, on server_boot_us(). */
int64_t strays_due(void);

#endif
