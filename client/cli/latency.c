/* SPDX-License-Identifier: BSD-3-Clause */
/* latency.c - see latency.h. Below 32 us a bucket is one microsecond; above, each power of two has
 * 32 of them. */
#include "latency.h"

static int bucket_of(uint64_t us) {
    if (us < 32) return (int)us;
    int power = 63 - __builtin_clzll(us);
    return (power - 4) * 32 + (int)(us >> (power - 5)) - 32;
}

static uint64_t end_of(int bucket) {
    if (bucket < 32) return (uint64_t)bucket + 1;
    int power = bucket / 32 + 4;
    return ((uint64_t)(bucket % 32) + 33) << (power - 5);
}

void latency_add(latency *latency, uint64_t us) {
    latency->counts[bucket_of(us)]++;
    latency->total++;
    if (us > latency->longest_us) latency->longest_us = us;
}

void latency_merge(latency *sum, const latency *more) {
    for (int i = 0; i < LATENCY_BUCKETS; i++)
        sum->counts[i] += more->counts[i];
    sum->total += more->total;
    if (more->longest_us > sum->longest_us) sum->longest_us = more->longest_us;
}

double latency_quantile_ms(const latency *latency, double part) {
    uint64_t below = 0;
    for (int i = 0; i < LATENCY_BUCKETS; i++) {
        below += latency->counts[i];
        if (below == 0 || (double)below < part * (double)latency->total) continue;
        uint64_t us = end_of(i) < latency->longest_us ? end_of(i) : latency->longest_us;
        return (double)us / 1000;
    }
    return 0;
}
