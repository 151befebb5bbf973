/* SPDX-License-Identifier: BSD-3-Clause */
/* eviction.c - see eviction.h. */
#include "eviction.h"

bool eviction_threatens_locks(void) {
    return (RedisModule_GetContextFlags(NULL) & REDISMODULE_CTX_FLAGS_EVICT) != 0;
}

void eviction_warn(RedisModuleCtx *ctx) {
    static bool was_threatened;
    bool is_threatened = eviction_threatens_locks();
    if (is_threatened && !was_threatened)
        RedisModule_Log(ctx, "warning",
                        "maxmemory-policy can evict locks, and an evicted lock can be taken twice: "
                        "set maxmemory-policy noeviction, or dlock.require-noeviction yes");
    was_threatened = is_threatened;
}
