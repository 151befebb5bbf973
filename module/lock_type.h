/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_type.h - the data type of a held lock: files, digests, and the removal of locks by Redis. */
#ifndef DLOCK_LOCK_TYPE_H
#define DLOCK_LOCK_TYPE_H

#include "redismodule.h"

int lock_type_register(RedisModuleCtx *ctx);

#endif
