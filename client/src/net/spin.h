/* SPDX-License-Identifier: BSD-3-Clause */
/* spin.h - does it pay off to poll for a moment before a thread sleeps?
 *
 * A thread that sleeps takes tens of microseconds to wake up, and a server nearby answers within as
 * many. Two out of three spins have to end with an event, else spinning pauses: the server is
 * slower, or there is little to do. It also pauses if a spin takes long: then other threads or
 * programs need the processor, and sleeping is the way to get it back soon. Each pause is twice as
 * long as the last one, until spinning has paid off for a while. All zero: spin at first. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum {
    SPIN_US = 100,
    SPIN_LONG_US = 1000,
    SPIN_PAUSE_MIN_US = 5000,
    SPIN_PAUSE_MAX_US = 80000,
    SPIN_LOSS = 2, /* in credit; a spin that pays off is 1 */
    SPIN_CREDIT_MAX = 16,
};

typedef struct spin {
    int credit;
    int64_t pause_us; /* the last one, or 0 */
    int64_t again_us; /* without credit: no spin before */
} spin;

static inline bool spin_is_wanted(const spin *spin, int64_t now_us) {
    return spin->credit > 0 || now_us >= spin->again_us;
}

/* A spin has ended. has_event: with an event. */
static inline void spin_note(spin *spin, bool has_event, int64_t begin_us, int64_t now_us) {
    bool is_long = now_us > begin_us + SPIN_LONG_US;
    spin->credit = is_long ? 0 : spin->credit + (has_event ? 1 : -SPIN_LOSS);
    if (spin->credit > SPIN_CREDIT_MAX) {
        spin->credit = SPIN_CREDIT_MAX;
        spin->pause_us = 0;
    }
    if (spin->credit > 0) return;
    spin->credit = 0;
    spin->pause_us = spin->pause_us == 0 ? SPIN_PAUSE_MIN_US : 2 * spin->pause_us;
    if (spin->pause_us > SPIN_PAUSE_MAX_US) spin->pause_us = SPIN_PAUSE_MAX_US;
    spin->again_us = now_us + spin->pause_us;
}
