/* SPDX-License-Identifier: BSD-3-Clause */
/* info_section.c - see info_section.h. The counters of stats.h live here, too. */
#include "info_section.h"

#include "fences.h"
#include "info_sessions.h"
#include "lock_value.h"
#include "mailbox.h"
#include "queues.h"
#include "server.h"
#include "session_waits.h"
#include "sessions.h"
#include "stats.h"
#include "ties.h"
#include "watches.h"
#include <stdio.h>

uint64_t stats_counters[STATS_COUNTER_COUNT];
stats_histogram stats_wait_us, stats_hold_us;

const char *const stats_names[STATS_COUNTER_COUNT] = {
#define STATS_NAME(id, name) [id] = name,
    STATS_COUNTERS(STATS_NAME)
#undef STATS_NAME
};

void stats_add(stats_histogram *histogram, int64_t us) {
    int bucket = us <= 0 ? 0 : 64 - __builtin_clzll((unsigned long long)us);
    histogram->counts[bucket < STATS_BUCKET_COUNT ? bucket : STATS_BUCKET_COUNT - 1]++;
    if (us > 0) histogram->sum_us += (uint64_t)us;
}

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

static void show_numbers(RedisModuleInfoCtx *info) {
    if (RedisModule_InfoAddSection(info, "") != REDISMODULE_OK) return;
    RedisModule_InfoAddFieldCString(info, "version", DLOCK_VERSION);
    RedisModule_InfoAddFieldLongLong(info, "held", lock_value_count());
    RedisModule_InfoAddFieldLongLong(info, "held_shared", lock_value_shared_count());
    RedisModule_InfoAddFieldLongLong(info, "holders", lock_value_all_holders());
    RedisModule_InfoAddFieldLongLong(info, "sessions", sessions_count.sessions);
    RedisModule_InfoAddFieldLongLong(info, "sessions_away", sessions_count.away);
    RedisModule_InfoAddFieldLongLong(info, "session_holds", ties_count());
    RedisModule_InfoAddFieldLongLong(info, "session_waiters", session_waits_count());
    RedisModule_InfoAddFieldLongLong(info, "watches", watches_count());
    RedisModule_InfoAddFieldLongLong(info, "events_unacknowledged", mailbox_count());
    RedisModule_InfoAddFieldLongLong(info, "waiters", queues_waiter_count());
    RedisModule_InfoAddFieldLongLong(info, "queues", queues_count());
    RedisModule_InfoAddFieldLongLong(info, "max_blocked", server_max_parked());
    for (int i = 0; i < STATS_COUNTER_COUNT; i++)
        RedisModule_InfoAddFieldULongLong(info, stats_names[i], stats_counters[i]);
    show_histogram(info, "wait_us", &stats_wait_us);
    show_histogram(info, "hold_us", &stats_hold_us);
    RedisModule_InfoAddFieldULongLong(info, "wait_sum_us", stats_wait_us.sum_us);
    RedisModule_InfoAddFieldULongLong(info, "hold_sum_us", stats_hold_us.sum_us);
    RedisModule_InfoAddFieldLongLong(info, "last_fence", fence_last());
    RedisModule_InfoAddFieldLongLong(info, "fence_clock", fence_clock(fences_time()));
    RedisModule_InfoAddFieldLongLong(info, "locks_evictable", server_may_evict_locks());
}

/* A crash report may be written by another thread, and after a crash no list can be trusted. */
static void show(RedisModuleInfoCtx *info, int for_crash_report) {
    show_numbers(info);
    if (!for_crash_report) info_sessions_show(info);
}

int info_section_register(RedisModuleCtx *ctx) {
    return RedisModule_RegisterInfoFunc(ctx, show);
}
