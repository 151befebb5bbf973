/* SPDX-License-Identifier: BSD-3-Clause */
/* statistics.c - see statistics.h. Pure.
 *
 *   INFO dlock   fields of all servers added up; rates and quantiles between two looks
 *   latencies    below 32 us a bucket is one microsecond; above, a power of two has 32 buckets */
#include "statistics.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* -- INFO dlock */

#define AT(field) offsetof(statistics, field)

static const struct counter {
    const char *field;
    size_t offset;
} counters[] = {{"dlock_held", AT(held)},           {"dlock_waiters", AT(waiters)},
                {"dlock_granted", AT(granted)},     {"dlock_handed_over", AT(handed_over)},
                {"dlock_contended", AT(contended)}, {"dlock_wait_timeouts", AT(wait_timeouts)}};

/* For example "1024=3,2048=7": below 1024, and below 2048. */
static void add_counts(int64_t counts[STATISTICS_BUCKETS], const char *value) {
    while (*value != '\0') {
        char *end;
        unsigned long long bound = strtoull(value, &end, 10);
        if (*end != '=' || bound == 0) return;
        int64_t count = strtoll(end + 1, &end, 10);
        int bucket = 63 - __builtin_clzll(bound);
        counts[bucket] += count;
        value = *end == ',' ? end + 1 : end;
        if (*end != ',' && *end != '\0') return;
    }
}

void statistics_add(void *arg, const char *server, const char *field, const char *value) {
    (void)server;
    statistics *statistics = arg;
    if (strcmp(field, "dlock_version") == 0) statistics->servers++;
    if (strcmp(field, "dlock_wait_us") == 0) add_counts(statistics->waits, value);
    if (strcmp(field, "dlock_hold_us") == 0) add_counts(statistics->holds, value);
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
        if (strcmp(field, counters[i].field) == 0)
            *(int64_t *)((char *)statistics + counters[i].offset) += strtoll(value, NULL, 10);
}

/* The bound below which this part of the counts is. */
static double quantile_ms(const int64_t counts[STATISTICS_BUCKETS], double part) {
    int64_t total = 0, below = 0;
    for (int i = 0; i < STATISTICS_BUCKETS; i++)
        total += counts[i];
    if (total <= 0) return -1;
    for (int i = 0; i < STATISTICS_BUCKETS; i++) {
        below += counts[i];
        if ((double)below >= part * (double)total) return (double)(1ULL << i) / 1000;
    }
    return -1;
}

statistics_change statistics_since(const statistics *before, const statistics *now) {
    int64_t waits[STATISTICS_BUCKETS];
    double seconds = (double)(now->at_ms - before->at_ms) / 1000;
    if (seconds <= 0 || now->granted < before->granted) /* a server has restarted */
        return (statistics_change){.wait_p50_ms = -1, .wait_p99_ms = -1};
    for (int i = 0; i < STATISTICS_BUCKETS; i++)
        waits[i] = now->waits[i] - before->waits[i];
    return (statistics_change){
        .grants_per_s = (double)(now->granted - before->granted) / seconds,
        .handovers_per_s = (double)(now->handed_over - before->handed_over) / seconds,
        .timeouts_per_s = (double)(now->wait_timeouts - before->wait_timeouts) / seconds,
        .wait_p50_ms = quantile_ms(waits, 0.5),
        .wait_p99_ms = quantile_ms(waits, 0.99)};
}

/* -- latencies */

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
