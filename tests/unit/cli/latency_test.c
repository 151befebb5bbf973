/* SPDX-License-Identifier: BSD-3-Clause */
/* latency_test.c - many times in little room. */
#include "latency.h"

#include "unit.h"

static latency times;

static void clear(void) {
    memset(&times, 0, sizeof(times));
}

static void nothing_has_no_length(void) {
    clear();
    CHECK(latency_quantile_ms(&times, 0.5) == 0);
}

static void one_time_is_every_quantile(void) {
    for (uint64_t us = 1; us < (UINT64_C(1) << 62); us = us * 3 + 1) {
        clear();
        latency_add(&times, us);
        CHECK(latency_quantile_ms(&times, 0.01) == (double)us / 1000);
        CHECK(latency_quantile_ms(&times, 0.99) == (double)us / 1000);
    }
}

static void a_quantile_is_right_to_within_three_percent(void) {
    clear();
    for (uint64_t us = 1; us <= 100000; us++)
        latency_add(&times, us);
    const double parts[] = {0.1, 0.5, 0.9, 0.99};
    for (size_t i = 0; i < 4; i++) {
        double exact = parts[i] * 100, got = latency_quantile_ms(&times, parts[i]);
        CHECK(got >= exact && got <= exact * 1.032);
    }
    CHECK(latency_quantile_ms(&times, 1) == 100);
}

static void two_are_merged_as_if_they_were_one(void) {
    static latency other;
    clear();
    latency_add(&times, 100);
    latency_add(&other, 5000);
    latency_add(&other, 6000);
    latency_merge(&times, &other);
    CHECK_EQUAL((int64_t)times.total, 3);
    CHECK_EQUAL((int64_t)times.longest_us, 6000);
    CHECK(latency_quantile_ms(&times, 0.3) < 0.11);
    CHECK(latency_quantile_ms(&times, 0.6) >= 5 && latency_quantile_ms(&times, 0.6) < 5.2);
}

int main(void) {
    UNIT_RUN(nothing_has_no_length);
    UNIT_RUN(one_time_is_every_quantile);
    UNIT_RUN(a_quantile_is_right_to_within_three_percent);
    UNIT_RUN(two_are_merged_as_if_they_were_one);
    return unit_summary();
}
