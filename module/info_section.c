/* SPDX-License-Identifier: BSD-3-Clause */
/* info_section.c - see info_section.h. */
#include "info_section.h"

#include "fence.h"
#include "lock_value.h"
#include "queues.h"
#include "server.h"
#include "sessions.h"
#include "stats.h"
#include <stdio.h>

/* Example: "1024=3,2048=7" means three times below 1024 us, and seven more below 2048 us. */
static void show_histogram(RedisModuleInfoCtx *info, const char *name,
                           const stats_histogram *histogram) {
    RedisModule_InfoBeginDictField(info, name);
    for (int i = 0; i < STATS_BUCKET_COUNT; i++) {
        if (histogram->counts[i] == 0) continue;
        char bound[24];
        snprintf(bound, sizeof(bound), "%llu", 1ULL << i);
        RedisModule_InfoAddFieldULongLong(info, bound, histogram->counts[i]);
    }
    RedisModule_InfoEndDictField(info);
}

static void show(RedisModuleInfoCtx *info, int for_crash_report) {
    (void)for_crash_report;
    if (RedisModule_InfoAddSection(info, "") != REDISMODULE_OK) return;
    RedisModule_InfoAddFieldCString(info, "version", DLOCK_VERSION);
    RedisModule_InfoAddFieldLongLong(info, "held", lock_value_count());
    RedisModule_InfoAddFieldLongLong(info, "held_shared", lock_value_shared_count());
    RedisModule_InfoAddFieldLongLong(info, "holders", lock_value_all_holders());
    RedisModule_InfoAddFieldLongLong(info, "sessions", sessions_count());
    RedisModule_InfoAddFieldLongLong(info, "waiters", queues_waiter_count());
    RedisModule_InfoAddFieldLongLong(info, "queues", queues_count());
    for (int i = 0; i < STATS_COUNTER_COUNT; i++)
        RedisModule_InfoAddFieldULongLong(info, stats_names[i], stats_counters[i]);
    show_histogram(info, "wait_us", &stats_wait_us);
    show_histogram(info, "hold_us", &stats_hold_us);
    RedisModule_InfoAddFieldULongLong(info, "wait_sum_us", stats_wait_us.sum_us);
    RedisModule_InfoAddFieldULongLong(info, "hold_sum_us", stats_hold_us.sum_us);
    RedisModule_InfoAddFieldLongLong(info, "last_fence", fence_last());
    RedisModule_InfoAddFieldLongLong(info, "locks_evictable", server_may_evict_locks());
}

int info_section_register(RedisModuleCtx *ctx) {
    return RedisModule_RegisterInfoFunc(ctx, show);
}
