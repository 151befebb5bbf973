/* SPDX-License-Identifier: BSD-3-Clause */
/* statistics.h - counters and histograms: INFO dlock of all servers, and the times that bench
 * measures. Pure. */
#ifndef DLOCK_CLI_STATISTICS_H
#define DLOCK_CLI_STATISTICS_H

#include <stdint.h>

/* -- INFO dlock of all servers, added up; and the change between two looks */

enum { STATISTICS_BUCKETS = 64 };

typedef struct statistics {
    int64_t at_ms; /* on some clock */
    int64_t servers, held, waiters;
    int64_t granted, handed_over, contended, wait_timeouts;
    /* [i]: below 2^i microseconds, and not below half of that. */
    int64_t waits[STATISTICS_BUCKETS], holds[STATISTICS_BUCKETS];
} statistics;

/* A dlock_info_fn. */
void statistics_add(void *arg, const char *server, const char *field, const char *value);

typedef struct statistics_change {
    double grants_per_s, handovers_per_s, timeouts_per_s;
    double wait_p50_ms, wait_p99_ms; /* bounds, at most twice the time; negative: no wait */
} statistics_change;

statistics_change statistics_since(const statistics *before, const statistics *now);

/* -- many times, each to within 3 %, in little room */

enum { LATENCY_BUCKETS = 64 * 32 };

typedef struct latency {
    uint64_t counts[LATENCY_BUCKETS];
    uint64_t total, longest_us;
} latency;

void latency_add(latency *latency, uint64_t us);
void latency_merge(latency *sum, const latency *more);

/* The time, in milliseconds, within which the given part of the waits ended. */
double latency_quantile_ms(const latency *latency, double part);

#endif
