/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_type.h - the data type of a held lock: how it lives in files and digests, and how we learn
 * that Redis took one away. */
#ifndef DLOCK_LOCK_TYPE_H
#define DLOCK_LOCK_TYPE_H

#include "redismodule.h"

int lock_type_register(RedisModuleCtx *ctx);

#endif
