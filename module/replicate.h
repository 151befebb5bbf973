/* SPDX-License-Identifier: BSD-3-Clause */
/* replicate.h - the one writer to the AOF and to the replicas.
 *
 * What is written is the resulting state with an absolute expiry, never the request, so that nobody
 * downstream decides anything again. DLOCK.APPLY (commands.c) is the reading end. */
#ifndef DLOCK_REPLICATE_H
#define DLOCK_REPLICATE_H

#include "lock_state.h"
#include "redismodule.h"

#define REPLICATE_COMMAND "dlock.apply"

void replicate_init(void);

/* The lock of that name is now in this state. argv: the words of the running command, of which the
 * second is name; NULL outside of a command. */
void replicate_state(RedisModuleCtx *ctx, RedisModuleString **argv, RedisModuleString *name,
                     const lock_state *state);

/* The running command (RELEASE, or DLOCK.APPLY itself) is its own result: pass it on as it is. */
void replicate_command(RedisModuleCtx *ctx);

/* The lock of that name is free, as if its holder had released it. */
void replicate_release(RedisModuleCtx *ctx, RedisModuleString *name, lock_token token);

/* A plain string now expires then. */
void replicate_string_expiry(RedisModuleCtx *ctx, RedisModuleString *name, int64_t expires_ms);

/* For AOF rewrite: the state without the expiry, which the core emits itself. */
void replicate_emit_aof(RedisModuleIO *aof, RedisModuleString *name, const lock_state *state);

#endif
