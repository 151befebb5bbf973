/* SPDX-License-Identifier: BSD-3-Clause */
/* stats.c - the counters and the INFO dlock section. */
#include "stats.h"

#include "eviction.h"
#include "fence.h"
#include "lock_type.h"
#include "sessions.h"
#include "waiters.h"
#include <stdio.h>

/* Bucket i counts times below 2^i microseconds, and not below half of that; 2^40 us are 12 days. */
enum { BUCKET_COUNT = 41 };
typedef struct histogram {
    uint64_t counts[BUCKET_COUNT];
} histogram;

uint64_t stats_counters[STATS_COUNTER_COUNT];
static histogram wait_times, hold_times;

static const char *const names[STATS_COUNTER_COUNT] = {
#define STATS_NAME(id, name) [id] = name,
    STATS_COUNTERS(STATS_NAME)
#undef STATS_NAME
};

static void add(histogram *to, uint64_t us) {
    int bucket = us == 0 ? 0 : 64 - __builtin_clzll(us);
    to->counts[bucket < BUCKET_COUNT ? bucket : BUCKET_COUNT - 1]++;
}

void stats_wait(uint64_t us) {
    add(&wait_times, us);
}

void stats_hold(uint64_t us) {
    add(&hold_times, us);
}

/* As "1024=3,2048=7": three below 1024 us, seven more below 2048 us. */
static void show_histogram(RedisModuleInfoCtx *info, const char *name, const histogram *times) {
    RedisModule_InfoBeginDictField(info, name);
    for (int i = 0; i < BUCKET_COUNT; i++) {
        if (times->counts[i] == 0) continue;
        char bound[24];
        snprintf(bound, sizeof(bound), "%llu", 1ULL << i);
        RedisModule_InfoAddFieldULongLong(info, bound, times->counts[i]);
    }
    RedisModule_InfoEndDictField(info);
}

static void show(RedisModuleInfoCtx *info, int for_crash_report) {
    (void)for_crash_report;
    if (RedisModule_InfoAddSection(info, "") != REDISMODULE_OK) return;
    RedisModule_InfoAddFieldCString(info, "version", DLOCK_VERSION);
    RedisModule_InfoAddFieldLongLong(info, "held", lock_value_count());
    RedisModule_InfoAddFieldLongLong(info, "sessions", sessions_count());
    RedisModule_InfoAddFieldLongLong(info, "waiters", waiters_total());
    RedisModule_InfoAddFieldLongLong(info, "queues", waiters_queue_count());
    for (int i = 0; i < STATS_COUNTER_COUNT; i++)
        RedisModule_InfoAddFieldULongLong(info, names[i], stats_counters[i]);
    show_histogram(info, "wait_us", &wait_times);
    show_histogram(info, "hold_us", &hold_times);
    RedisModule_InfoAddFieldLongLong(info, "last_fence", fence_last());
    RedisModule_InfoAddFieldLongLong(info, "locks_evictable", eviction_threatens_locks());
}

int stats_register(RedisModuleCtx *ctx) {
    return RedisModule_RegisterInfoFunc(ctx, show);
}
