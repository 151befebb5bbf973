/* SPDX-License-Identifier: BSD-3-Clause */
/* eviction.c - see eviction.h. */
#include "eviction.h"

bool eviction_threatens_locks(void) {
    return (RedisModule_GetContextFlags(NULL) & REDISMODULE_CTX_FLAGS_EVICT) != 0;
}

static void warn_once(RedisModuleCtx *ctx) {
    static bool was_threatened;
    bool is_threatened = eviction_threatens_locks();
    if (is_threatened && !was_threatened)
        RedisModule_Log(ctx, "warning",
                        "maxmemory-policy can evict locks, and an evicted lock can be taken twice: "
                        "set maxmemory-policy noeviction, or dlock.require-noeviction yes");
    was_threatened = is_threatened;
}

static void on_config_change(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t subevent,
                             void *data) {
    (void)event, (void)subevent, (void)data;
    warn_once(ctx);
}

int eviction_watch(RedisModuleCtx *ctx) {
    warn_once(ctx);
    return RedisModule_SubscribeToServerEvent(ctx, RedisModuleEvent_Config, on_config_change);
}
