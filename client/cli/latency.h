/* SPDX-License-Identifier: BSD-3-Clause */
/* latency.h - many times, each to within 3 %, in little room. Pure. */
#ifndef DLOCK_CLI_LATENCY_H
#define DLOCK_CLI_LATENCY_H

#include <stdint.h>

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
