/* SPDX-License-Identifier: BSD-3-Clause */
/* validity_test.c - how long a lease is certainly ours. */
#include "lease/lease.h"

#include "unit.h"

enum { ASKED_US = 1000000 };

static int64_t valid_for_us(uint32_t lease_ms) {
    return validity_end_us(ASKED_US, lease_ms) - ASKED_US;
}

TEST(it_is_the_lease_less_one_percent_and_two_milliseconds) {
    CHECK_EQUAL(valid_for_us(10000), 10000000 - 100000 - 2000);
    CHECK_EQUAL(valid_for_us(1000), 1000000 - 10000 - 2000);
    CHECK_EQUAL(valid_for_us(50), 50000 - 500 - 2000);
}

TEST(it_is_counted_from_when_it_was_asked_for) {
    CHECK_EQUAL(validity_end_us(0, 1000), 988000);
    CHECK_EQUAL(validity_end_us(123, 1000), 988123);
}

TEST(a_lease_as_short_as_the_allowance_is_never_valid) {
    CHECK_EQUAL(valid_for_us(0), 0);
    CHECK_EQUAL(valid_for_us(1), 0);
    CHECK_EQUAL(valid_for_us(2), 0);
}

TEST(the_shortest_lease_that_is_valid_has_three_milliseconds) {
    CHECK_EQUAL(valid_for_us(3), 970);
}

TEST(the_longest_lease_does_not_overflow) {
    CHECK_EQUAL(valid_for_us(UINT32_MAX), INT64_C(4294967295) * 990 - 2000);
}

TEST(a_longer_lease_is_never_valid_for_less) {
    for (uint32_t lease_ms = 0; lease_ms < 100000; lease_ms++)
        CHECK(valid_for_us(lease_ms) <= valid_for_us(lease_ms + 1));
}

int main(void) {
    return unit_main(NULL, NULL);
}
