/* SPDX-License-Identifier: BSD-3-Clause */
/* caller.c - see caller.h. */
#include "caller.h"

#include "guard.h"

/* A script or a module runs commands under an internal client, which never disconnects. An
 * internal client has no user. Valkey 9.1 finds even internal clients by their id. */
bool caller_has_connection(RedisModuleCtx *ctx) {
    RedisModuleString *user = RedisModule_GetClientUserNameById(ctx, RedisModule_GetClientId(ctx));
    if (user != NULL) RedisModule_FreeString(ctx, user);
    return user != NULL && !guard_is_running();
}

/* A script or a transaction never waits: the reply comes at once. The same holds for a replica,
 * which hands no locks over, and for a call of another module, which the core could not abort. */
bool caller_may_block(RedisModuleCtx *ctx) {
    int no = REDISMODULE_CTX_FLAGS_DENY_BLOCKING | REDISMODULE_CTX_FLAGS_MULTI |
             REDISMODULE_CTX_FLAGS_LUA | REDISMODULE_CTX_FLAGS_SLAVE;
    return (RedisModule_GetContextFlags(ctx) & no) == 0 && caller_has_connection(ctx);
}
