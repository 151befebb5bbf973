/* SPDX-License-Identifier: BSD-3-Clause */
/* replicate.h - the one writer to the AOF and to the replicas.
 *
 * The stream carries the resulting state with the length of the lease, never the request, so that
 * nobody downstream decides anything again:
 *
 *   DLOCK.APPLY key token fence lease-ms   token holds the lock; its lease starts now
 *   DLOCK.RELEASE key token                token holds it no more
 */
#ifndef DLOCK_REPLICATE_H
#define DLOCK_REPLICATE_H

#include "lock_state.h"
#include "redismodule.h"

#define REPLICATE_COMMAND "dlock.apply"

void replicate_init(void);

/* The lock of that name is now in this state. argv: the words of the running ACQUIRE or EXTEND, if
 * it has asked for this very state: its own name, token and lease; else NULL. */
void replicate_state(RedisModuleCtx *ctx, RedisModuleString **argv, int argc,
                     RedisModuleString *name, const lock_state *state);

/* The running command (RELEASE, or DLOCK.APPLY itself) is its own result: pass it on as it is. */
void replicate_command(RedisModuleCtx *ctx);

/* The lock of that name is free, as if its holder had released it. */
void replicate_release(RedisModuleCtx *ctx, RedisModuleString *name, lock_token token);

/* The running command is an EXTEND of a plain string, which now expires then. */
void replicate_string_expiry(RedisModuleCtx *ctx, RedisModuleString *name, int64_t expires_ms);

/* For AOF rewrite. */
void replicate_emit_aof(RedisModuleIO *aof, RedisModuleString *name, const lock_state *state);

#endif
