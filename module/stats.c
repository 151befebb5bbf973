/* SPDX-License-Identifier: BSD-3-Clause */
/* stats.c - see stats.h. */
#include "stats.h"

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
