/* SPDX-License-Identifier: BSD-3-Clause */
/* replicate.h - the only writer to the AOF and to the replicas.
 *
 * The stream carries the resulting state with the length of the lease, never the request, so
 * that no replica and no loading server decides again:
 *
 *   DLOCK.APPLY key token fence lease-ms          token alone holds the lock; the lease starts now
 *   DLOCK.APPLY key token fence lease-ms SHARED   token holds the lock, with the other shared
 *                                                 holders, if there are any; the lease starts now
 *   DLOCK.APPLYALL count key ... token fence lease-ms [SHARED]
 *                                                 the same for several locks, in one step
 *   DLOCK.RELEASE key token                       token no longer holds the lock
 *   DLOCK.RELEASEALL count key ... token          token no longer holds any of these locks
 *   DLOCK.CLOCK base-us clock-us                  the clock of fences (fence.h) */
#ifndef DLOCK_REPLICATE_H
#define DLOCK_REPLICATE_H

#include "lock_state.h"
#include "redismodule.h"

#define REPLICATE_COMMAND       "dlock.apply"
#define REPLICATE_ALL_COMMAND   "dlock.applyall"
#define REPLICATE_CLOCK_COMMAND "dlock.clock"

void replicate_init(void);

/* The holder is now in the given state. argv: the arguments of the running ACQUIRE or EXTEND if
 * the command asked for exactly the given name, token and lease; else NULL. */
void replicate_state(RedisModuleCtx *ctx, RedisModuleString **argv, int argc,
                     RedisModuleString *name, const lock_state *state);

/* The holder is now in the given state at all these locks. argv: as above, of the running
 * ACQUIREALL. */
void replicate_states(RedisModuleCtx *ctx, RedisModuleString **argv, int argc,
                      RedisModuleString **names, int count, const lock_state *state);

/* The running command (RELEASE, DLOCK.APPLY or DLOCK.CLOCK, or one for several locks) is its own
 * result: it is replicated unchanged. */
void replicate_command(RedisModuleCtx *ctx);

/* The token no longer holds the lock, as if it had released it. */
void replicate_release(RedisModuleCtx *ctx, RedisModuleString *name, lock_token token);

/* The running command is an EXTEND of a plain string, which now expires at expires_ms. */
void replicate_string_expiry(RedisModuleCtx *ctx, RedisModuleString *name, int64_t expires_ms);

/* The clock of fences. */
void replicate_clock(RedisModuleCtx *ctx, int64_t base_us, int64_t clock_us);

/* For an AOF rewrite. */
void replicate_emit_aof(RedisModuleIO *aof, RedisModuleString *name, const lock_state *state);

#endif
