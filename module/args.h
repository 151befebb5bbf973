/* SPDX-License-Identifier: BSD-3-Clause */
/* args.h - parse the arguments of a command into a request, before any key is touched.
 *
 * A return value of false always means: exactly one error, which names the argument, is sent. */
#ifndef DLOCK_ARGS_H
#define DLOCK_ARGS_H

#include "lock_state.h"
#include "redismodule.h"

/* A token of 1..LOCK_TOKEN_MAX bytes. */
bool args_parse_token_or_reply(RedisModuleCtx *ctx, RedisModuleString *word, lock_token *token);

/* The arguments of ACQUIRE after the key:
 * "token PX ms [WAIT ms] [SESSION] [SHARED [MAX n]] [FENCE n]". */
bool args_parse_acquire_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                                 lock_request *request);

/* The arguments of EXTEND after the key: "token PX ms". */
bool args_parse_extend_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                                lock_request *request);

/* The arguments of INFO after the key: "[WAITERS n]". *waiters_shown: how many; 0: none. */
bool args_parse_info_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                              int64_t *waiters_shown);

/* The arguments of APPLY after the key: "token fence lease-ms [SHARED]"; see replicate.h. */
bool args_parse_apply_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                               lock_state *state);

#endif
