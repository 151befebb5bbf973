/* SPDX-License-Identifier: BSD-3-Clause */
/* statistics_test.c - INFO dlock, and what has changed in it. */
#include "statistics.h"

#include "unit.h"

static void tell(statistics *to, const char *granted, const char *waits) {
    statistics_add(to, "one:6379", "dlock_version", "0.1.0");
    statistics_add(to, "one:6379", "dlock_held", "3");
    statistics_add(to, "one:6379", "dlock_granted", granted);
    statistics_add(to, "one:6379", "dlock_something_new", "17");
    statistics_add(to, "one:6379", "dlock_wait_us", waits);
}

static void servers_are_added_up(void) {
    statistics all = {0};
    tell(&all, "10", "1024=3,2048=7");
    tell(&all, "5", "2048=1");
    CHECK_EQUAL(all.servers, 2);
    CHECK_EQUAL(all.held, 6);
    CHECK_EQUAL(all.granted, 15);
    CHECK_EQUAL(all.waits[10], 3);
    CHECK_EQUAL(all.waits[11], 8);
}

static void a_histogram_may_be_empty_or_nonsense(void) {
    statistics all = {0};
    const char *const lines[] = {"", "x", "=", "1024", "1024=", "0=1", "1024=1,", "1024=1;"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        statistics_add(&all, "", "dlock_wait_us", lines[i]);
    CHECK_EQUAL(all.waits[10], 2);
}

static void a_change_is_per_second_and_of_the_waits_in_between(void) {
    statistics before = {.at_ms = 1000}, now = {.at_ms = 3000};
    tell(&before, "100", "65536=1000");
    tell(&now, "300", "1024=98,4096=2,65536=1000");
    statistics_change change = statistics_since(&before, &now);
    CHECK(change.grants_per_s == 100);
    CHECK(change.wait_p50_ms == 1.024);
    CHECK(change.wait_p99_ms == 4.096);
}

static void where_nobody_waited_there_is_no_wait(void) {
    statistics before = {.at_ms = 1000}, now = {.at_ms = 3000};
    CHECK(statistics_since(&before, &now).wait_p50_ms < 0);
}

static void a_server_that_started_anew_has_no_change(void) {
    statistics before = {.at_ms = 1000, .granted = 9}, now = {.at_ms = 3000, .granted = 1};
    CHECK(statistics_since(&before, &now).grants_per_s == 0);
}

int main(void) {
    UNIT_RUN(servers_are_added_up);
    UNIT_RUN(a_histogram_may_be_empty_or_nonsense);
    UNIT_RUN(a_change_is_per_second_and_of_the_waits_in_between);
    UNIT_RUN(where_nobody_waited_there_is_no_wait);
    UNIT_RUN(a_server_that_started_anew_has_no_change);
    return unit_summary();
}
