/* SPDX-License-Identifier: BSD-3-Clause */
/* fences.h - gives out the fences of this server, and tells others of its clock (fence.h).
 *
 *   replicas, AOF       each grant carries its fence; DLOCK.CLOCK carries the clock, every few
 *                       seconds while fences are given out, after each fork (an AOF that is
 *                       rewritten begins without it) and when a replica has joined
 *   nodes of a cluster  a message over the cluster bus, every few seconds once there was a fence
 *   RDB                 the clock (lock_type.c)
 *
 * A clock that has stepped ahead is told at once. */
#ifndef DLOCK_FENCES_H
#define DLOCK_FENCES_H

#include "fence.h"
#include "lock_state.h"
#include "redismodule.h"

/* Listens to the other nodes of a cluster. */
void fences_init(RedisModuleCtx *ctx);

/* The fence of a grant: of a run, the last one. boot_us: the time on server_boot_us(). */
int64_t fences_next(const lock_request *request, int64_t boot_us);

#define FENCES_USED_UP "ERR FENCES: too many fences were reserved lately, try again later"

/* Both clocks, now. */
fence_time fences_time(void);

/* Somebody new may not know the clock: a file that a child process begins to write, a replica. */
void fences_tell_soon(void);

/* The server begins to give out fences. */
void fences_take_over(bool is_promoted);

/* When the clock has to be told, on server_boot_us(), or SERVER_NEVER. */
int64_t fences_due(void);

/* Tells the clock if that is due. ctx may write. Returns true if it has written. */
bool fences_tell(RedisModuleCtx *ctx);

#endif
