/* SPDX-License-Identifier: BSD-3-Clause */
/* stats.c - the counters and the INFO dlock section. */
#include "stats.h"

#include "eviction.h"
#include "fence.h"
#include "lock_type.h"

uint64_t stats_counters[STATS_COUNTER_COUNT];

static const char *const names[STATS_COUNTER_COUNT] = {
#define STATS_NAME(id, name) [id] = name,
    STATS_COUNTERS(STATS_NAME)
#undef STATS_NAME
};

static void show(RedisModuleInfoCtx *info, int for_crash_report) {
    (void)for_crash_report;
    if (RedisModule_InfoAddSection(info, "") != REDISMODULE_OK) return;
    RedisModule_InfoAddFieldCString(info, "version", DLOCK_VERSION);
    RedisModule_InfoAddFieldLongLong(info, "held", lock_value_count());
    for (int i = 0; i < STATS_COUNTER_COUNT; i++)
        RedisModule_InfoAddFieldULongLong(info, names[i], stats_counters[i]);
    RedisModule_InfoAddFieldLongLong(info, "last_fence", fence_last());
    RedisModule_InfoAddFieldLongLong(info, "locks_evictable", eviction_threatens_locks());
}

int stats_register(RedisModuleCtx *ctx) {
    return RedisModule_RegisterInfoFunc(ctx, show);
}
