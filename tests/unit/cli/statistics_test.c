/* SPDX-License-Identifier: BSD-3-Clause */
/* statistics_test.c - INFO dlock of all servers, and many times in little room. */
#include "statistics.h"

#include "unit.h"

/* -- INFO dlock */

static void tell(statistics *to, const char *granted, const char *waits) {
    statistics_add(to, "one:6379", "dlock_version", "0.1.0");
    statistics_add(to, "one:6379", "dlock_held", "3");
    statistics_add(to, "one:6379", "dlock_granted", granted);
    statistics_add(to, "one:6379", "dlock_something_new", "17");
    statistics_add(to, "one:6379", "dlock_wait_us", waits);
}

TEST(servers_are_added_up) {
    statistics all = {0};
    tell(&all, "10", "1024=3,2048=7");
    tell(&all, "5", "2048=1");
    CHECK_EQUAL(all.servers, 2);
    CHECK_EQUAL(all.held, 6);
    CHECK_EQUAL(all.granted, 15);
    CHECK_EQUAL(all.waits[10], 3);
    CHECK_EQUAL(all.waits[11], 8);
}

TEST(a_histogram_may_be_empty_or_nonsense) {
    statistics all = {0};
    const char *const lines[] = {"", "x", "=", "1024", "1024=", "0=1", "1024=1,", "1024=1;"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        statistics_add(&all, "", "dlock_wait_us", lines[i]);
    CHECK_EQUAL(all.waits[10], 2);
}

TEST(a_change_is_per_second_and_of_the_waits_in_between) {
    statistics before = {.at_ms = 1000}, now = {.at_ms = 3000};
    tell(&before, "100", "65536=1000");
    tell(&now, "300", "1024=98,4096=2,65536=1000");
    statistics_change change = statistics_since(&before, &now);
    CHECK(change.grants_per_s == 100);
    CHECK(change.wait_p50_ms == 1.024);
    CHECK(change.wait_p99_ms == 4.096);
}

TEST(where_nobody_waited_there_is_no_wait) {
    statistics before = {.at_ms = 1000}, now = {.at_ms = 3000};
    CHECK(statistics_since(&before, &now).wait_p50_ms < 0);
}

TEST(a_server_that_started_anew_has_no_change) {
    statistics before = {.at_ms = 1000, .granted = 9}, now = {.at_ms = 3000, .granted = 1};
    CHECK(statistics_since(&before, &now).grants_per_s == 0);
}

/* -- latencies */

static latency times;

static void clear(void) {
    memset(&times, 0, sizeof(times));
}

TEST(nothing_has_no_length) {
    clear();
    CHECK(latency_quantile_ms(&times, 0.5) == 0);
}

TEST(one_time_is_every_quantile) {
    for (uint64_t us = 1; us < (UINT64_C(1) << 62); us = us * 3 + 1) {
        clear();
        latency_add(&times, us);
        CHECK(latency_quantile_ms(&times, 0.01) == (double)us / 1000);
        CHECK(latency_quantile_ms(&times, 0.99) == (double)us / 1000);
    }
}

TEST(a_quantile_is_right_to_within_three_percent) {
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

TEST(two_are_merged_as_if_they_were_one) {
    static latency other;
    clear();
    latency_add(&times, 100);
    latency_add(&other, 5000);
    latency_add(&other, 6000);
    latency_merge(&times, &other);
    CHECK_EQUAL(times.total, 3);
    CHECK_EQUAL(times.longest_us, 6000);
    CHECK(latency_quantile_ms(&times, 0.3) < 0.11);
    CHECK(latency_quantile_ms(&times, 0.6) >= 5 && latency_quantile_ms(&times, 0.6) < 5.2);
}

int main(void) {
    return unit_main(NULL, NULL);
}
