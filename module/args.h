/* SPDX-License-Identifier: BSD-3-Clause */
/* args.h - parse the arguments of a command into a request, before any key is touched.
 *
 * A return value of false always means: exactly one error, which names the argument, is sent. */
#ifndef DLOCK_ARGS_H
#define DLOCK_ARGS_H

#include "lock_state.h"
#include "redismodule.h"
#include "session.h"

/* A token of 1..LOCK_TOKEN_MAX bytes. */
bool args_parse_token_or_reply(RedisModuleCtx *ctx, RedisModuleString *word, lock_token *token);

/* The names in the arguments of a command: "command count key [key ...]", and at least one word
 * after them. All names are different. */
bool args_parse_names_or_reply(RedisModuleCtx *ctx, RedisModuleString **argv, int argc,
                               int *name_count);

/* The arguments of ACQUIRE after the key:
 * "token PX ms [WAIT ms] [VIA id] [SESSION [GRACE ms]] [SHARED [MAX n]] [FENCE n]
 * [FENCES n]". */
bool args_parse_acquire_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                                 lock_request *request);

/* The arguments of EXTEND after the key: "token PX ms". */
bool args_parse_extend_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                                lock_request *request);

typedef struct session_request {
    const char *id;
    size_t id_length;
    int64_t timeout_ms;
    int64_t acknowledged; /* events up to this number; below 1: none */
    bool is_end;
} session_request;

enum { SESSION_TIMEOUT_MIN_MS = 100 };

/* The arguments of SESSION: "id PX ms [ACK n]", or "id END". */
bool args_parse_session_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                                 session_request *request);

/* An id of SESSION_ID_MIN..SESSION_ID_MAX bytes. */
bool args_check_session_id_or_reply(RedisModuleCtx *ctx, RedisModuleString *id);

/* The living session of the calling user; any session if another module calls. NULL: there is none,
 * and the error is sent. */
session *args_find_session_or_reply(RedisModuleCtx *ctx, RedisModuleString *id);

/* The arguments of INFO after the key: "[WAITERS n]". *waiters_shown: how many; 0: none. */
bool args_parse_info_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                              int64_t *waiters_shown);

/* The arguments of APPLY after the key: "token fence lease-ms [SHARED]"; see replicate.h. */
bool args_parse_apply_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                               lock_state *state);

/* The arguments of CLOCK: "base-us clock-us". */
bool args_parse_clock_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int64_t *base_us,
                               int64_t *clock_us);

#endif
