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

void latency_add(latency *to, uint64_t us) {
    to->counts[bucket_of(us)]++;
    to->total++;
    if (us > to->longest_us) to->longest_us = us;
}

void latency_merge(latency *to, const latency *from) {
    for (int i = 0; i < LATENCY_BUCKETS; i++)
        to->counts[i] += from->counts[i];
    to->total += from->total;
    if (from->longest_us > to->longest_us) to->longest_us = from->longest_us;
}

double latency_quantile_ms(const latency *of, double part) {
    uint64_t below = 0;
    for (int i = 0; i < LATENCY_BUCKETS; i++) {
        below += of->counts[i];
        if (below == 0 || (double)below < part * (double)of->total) continue;
        uint64_t us = end_of(i) < of->longest_us ? end_of(i) : of->longest_us;
        return (double)us / 1000;
    }
    return 0;
}
