/* SPDX-License-Identifier: BSD-3-Clause */
/* validity.c - see validity.h. */
#include "validity.h"

enum { DRIFT_PER_MS_US = 10, DRIFT_US = 2000 };

int64_t validity_end_us(int64_t asked_us, uint32_t lease_ms) {
    int64_t lease_us = (int64_t)lease_ms * 1000;
    int64_t drift_us = (int64_t)lease_ms * DRIFT_PER_MS_US + DRIFT_US;
    return lease_us > drift_us ? asked_us + lease_us - drift_us : asked_us;
}
