/* SPDX-License-Identifier: BSD-3-Clause */
/* spin_test.c - when a thread spins, and when it does not. */
#include "net/spin.h"

#include "unit.h"

static const int64_t T0_US = 1000000;

static spin the_spin;
static int64_t now_us;

static void begin(void) {
    the_spin = (spin){0};
    now_us = T0_US;
}

static void spin_for(int64_t duration_us, bool has_event) {
    CHECK(spin_is_wanted(&the_spin, now_us));
    int64_t begin_us = now_us;
    now_us += duration_us;
    spin_note(&the_spin, has_event, begin_us, now_us);
}

static void check_pause(int64_t pause_us) {
    CHECK(!spin_is_wanted(&the_spin, now_us));
    CHECK(!spin_is_wanted(&the_spin, now_us + pause_us - 1));
    CHECK(spin_is_wanted(&the_spin, now_us + pause_us));
}

TEST(the_first_wait_spins) {
    CHECK(spin_is_wanted(&the_spin, now_us));
}

TEST(a_spin_for_nothing_is_followed_by_a_pause) {
    spin_for(SPIN_US, false);
    check_pause(SPIN_PAUSE_MIN_US);
}

TEST(spinning_goes_on_while_two_of_three_pay_off) {
    spin_for(10, true);
    for (int i = 0; i < 1000; i++) {
        spin_for(10, true);
        spin_for(10, true);
        spin_for(SPIN_US, false);
    }
}

TEST(spinning_ends_while_half_pay_off) {
    for (int i = 0; i < 1000; i++)
        spin_for(10, true);
    int spins = 0;
    while (spin_is_wanted(&the_spin, now_us) && spins < 1000)
        spin_for(10, spins++ % 2 == 0);
    CHECK(spins <= 2 * SPIN_CREDIT_MAX);
    check_pause(SPIN_PAUSE_MIN_US);
}

TEST(a_long_spin_is_followed_by_a_pause_even_with_an_event) {
    for (int i = 0; i < 100; i++)
        spin_for(10, true);
    spin_for(SPIN_LONG_US + 1, true);
    check_pause(SPIN_PAUSE_MIN_US);
}

TEST(after_the_pause_a_success_is_enough_to_go_on) {
    spin_for(SPIN_US, false);
    now_us += SPIN_PAUSE_MIN_US;
    spin_for(10, true);
    CHECK(spin_is_wanted(&the_spin, now_us));
}

TEST(pauses_grow_until_spinning_pays_off_for_a_while) {
    for (int64_t pause_us = SPIN_PAUSE_MIN_US; pause_us < SPIN_PAUSE_MAX_US; pause_us *= 2) {
        spin_for(10, true);
        spin_for(SPIN_US, false);
        check_pause(pause_us);
        now_us += pause_us;
    }
    for (int i = 0; i < 2; i++) {
        spin_for(SPIN_US, false);
        check_pause(SPIN_PAUSE_MAX_US);
        now_us += SPIN_PAUSE_MAX_US;
    }
    for (int i = 0; i <= SPIN_CREDIT_MAX; i++)
        spin_for(10, true);
    spin_for(SPIN_LONG_US + 1, false);
    check_pause(SPIN_PAUSE_MIN_US);
}

int main(void) {
    return unit_main(begin, NULL);
}
