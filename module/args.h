/* SPDX-License-Identifier: BSD-3-Clause */
/* args.h - from the words of a command to a request, before anything is touched.
 *
 * False always means: the one error, which names the argument, is already sent. */
#ifndef DLOCK_ARGS_H
#define DLOCK_ARGS_H

#include "lock_state.h"
#include "redismodule.h"

/* A token of 1..LOCK_TOKEN_MAX bytes. */
bool args_parse_token_or_reply(RedisModuleCtx *ctx, RedisModuleString *word, lock_token *token);

/* "token PX ms [WAIT ms] [SESSION] [FENCE n]": what stands behind the key in ACQUIRE. */
bool args_parse_acquire_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                                 lock_request *request);

/* "token PX ms": what stands behind the key in EXTEND. */
bool args_parse_extend_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                                lock_request *request);

/* "[WAITERS n]": what stands behind the key in INFO. *waiters_shown: how many; 0: none. */
bool args_parse_info_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                              int64_t *waiters_shown);

/* "token fence lease-ms": what stands behind the key in APPLY; see replicate.h. */
bool args_parse_apply_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, lock_state *state);

#endif
