/* SPDX-License-Identifier: BSD-3-Clause */
/* strays.h - locks that live on under a name unknown to the module.
 *
 * RENAME and MOVE take a lock away from its name as DEL does. The module learns about the loss
 * of the old name, but not about the new name. The lease must end under the new name all the
 * same. So if the value is still alive a second later, the module searches the keyspace for it,
 * in portions. After a search it rests for fifty times the work.
 *
 * RESTORE may throw the loaded lock away. So a lock that is loaded outside of a file is a stray,
 * too, until the module has seen it under its name. */
#ifndef DLOCK_STRAYS_H
#define DLOCK_STRAYS_H

#include "redismodule.h"
#include <stdint.h>

/* A value has lost its lease entry: starts a search, unless Redis frees the value soon. */
void strays_search_soon(void);

/* A stray is expected under this name, soon. */
void strays_expect(int db, const RedisModuleString *name);

/* Looks under the expected names, and searches if a search is due, until until_us. */
void strays_run(RedisModuleCtx *ctx, int64_t until_us);

/* When the search goes on, on server_boot_us(). */
int64_t strays_due(void);

#endif
