/* SPDX-License-Identifier: BSD-3-Clause */
/* dlock.c - where the module begins: what is registered, in which order.
 *
 *   commands.c    the commands and their table            args.c      their arguments
 *   transition.c  the one place where a lock changes hands
 *   waiters.c     who waits for it                        sessions.c  whose connection it ends with
 *   deferred.c    what must be done a moment later        deadlines.c their waits (pure)
 *   lock_state.c  its rules (pure)                        fence.c     the fence counter
 *   lock_store.c  a lock as a key                         lock_type.c the data type
 *   replicate.c   the one writer to AOF and replicas      lock_codec.c its form (pure)
 *   settings.c, stats.c, eviction.c                       what an operator sets and sees
 *   server_events.c                                       what the server tells us
 *   optional_api.c                                        what only newer servers have
 *
 * Redis keeps everything registered here until it exits: a module with a data type is never
 * unloaded. */
#define REDISMODULE_MAIN
#include "redismodule.h"

#include "commands.h"
#include "eviction.h"
#include "lock_type.h"
#include "optional_api.h"
#include "replicate.h"
#include "server_events.h"
#include "sessions.h"
#include "settings.h"
#include "stats.h"
#include "transition.h"

/* We check every read of an RDB, signal every change ourselves, and may be loaded into a replica
 * that goes on serving while it loads. */
enum {
    OPTIONS = REDISMODULE_OPTIONS_HANDLE_IO_ERRORS |
              REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED |
              REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD
};

__attribute__((visibility("default"))) int RedisModule_OnLoad(RedisModuleCtx *ctx,
                                                              RedisModuleString **argv, int argc);

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (RedisModule_Init(ctx, "dlock", DLOCK_VERSION_NUMBER, REDISMODULE_APIVER_1) !=
        REDISMODULE_OK)
        return REDISMODULE_ERR;
    if (RedisModule_RegisterNumericConfig == NULL) {
        RedisModule_Log(ctx, "warning", "dlock needs Redis 7.0 or Valkey 8.0, or later");
        return REDISMODULE_ERR;
    }
    optional_api_look_up();
    RedisModule_SetModuleOptions(ctx, OPTIONS | optional_api_options(ctx));
    if (settings_register(ctx, argv, argc) != REDISMODULE_OK) return REDISMODULE_ERR;
    replicate_init(); /* nothing is allocated before the arguments are known to be good */
    sessions_init();
    if (lock_type_register(ctx) != REDISMODULE_OK || commands_register(ctx) != REDISMODULE_OK ||
        transition_register(ctx) != REDISMODULE_OK || stats_register(ctx) != REDISMODULE_OK ||
        server_events_subscribe(ctx) != REDISMODULE_OK)
        return REDISMODULE_ERR;
    eviction_warn(ctx);
    RedisModule_Log(ctx, "notice", "dlock %s is ready", DLOCK_VERSION);
    return REDISMODULE_OK;
}
