/* SPDX-License-Identifier: BSD-3-Clause */
/* duration_test.c - times as people write them. */
#include "duration.h"

#include "unit.h"

enum { NONE = -1 };

static int64_t parsed(const char *text) {
    int64_t ms;
    return duration_parse(text, &ms) ? ms : NONE;
}

static void check_shown(int64_t ms, const char *expected) {
    char text[DURATION_SIZE];
    duration_show(ms, text);
    CHECK_BYTES(text, strlen(text), expected, strlen(expected));
}

static void a_bare_number_is_seconds(void) {
    CHECK_EQUAL(parsed("5"), 5000);
    CHECK_EQUAL(parsed("0"), 0);
    CHECK_EQUAL(parsed("0.25"), 250);
}

static void there_are_five_units(void) {
    CHECK_EQUAL(parsed("500ms"), 500);
    CHECK_EQUAL(parsed("5s"), 5000);
    CHECK_EQUAL(parsed("2m"), 120000);
    CHECK_EQUAL(parsed("1.5h"), 5400000);
    CHECK_EQUAL(parsed("1d"), 86400000);
}

static void what_is_no_time_is_refused(void) {
    const char *const wrong[] = {"",   "s",   "-1",  "+1", " 1",  "1 ", "1x",   "1ss", "ms",
                                 "1e", "nan", "inf", ".",  "1,5", "0x", "0x10", "1e3", "9999d"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CHECK_EQUAL(parsed(wrong[i]), NONE);
}

static void what_is_not_nothing_does_not_become_nothing(void) {
    CHECK_EQUAL(parsed("0.1ms"), NONE);
    CHECK_EQUAL(parsed("0.0001s"), NONE);
    CHECK_EQUAL(parsed("0ms"), 0);
}

static void they_are_shown_in_little_room(void) {
    check_shown(-1, "-");
    check_shown(0, "0ms");
    check_shown(999, "999ms");
    check_shown(1000, "1.0s");
    check_shown(9999, "9.9s");
    check_shown(10000, "10s");
    check_shown(60000, "1m00");
    check_shown(3599999, "59m59");
    check_shown(3600000, "1h00");
    check_shown(86399999, "23h59");
    check_shown(86400000, "1d");
}

int main(void) {
    UNIT_RUN(a_bare_number_is_seconds);
    UNIT_RUN(there_are_five_units);
    UNIT_RUN(what_is_no_time_is_refused);
    UNIT_RUN(what_is_not_nothing_does_not_become_nothing);
    UNIT_RUN(they_are_shown_in_little_room);
    return unit_summary();
}
