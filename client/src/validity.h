/* SPDX-License-Identifier: BSD-3-Clause */
/* validity.h - how long a lease is certainly ours. Pure. */
#ifndef DLOCK_VALIDITY_H
#define DLOCK_VALIDITY_H

#include <stdint.h>

/* The end of a lease that was asked for at asked_us, less what the server's clock may run faster
 * than ours: 1 % of it and 2 ms. */
int64_t validity_end_us(int64_t asked_us, uint32_t lease_ms);

#endif
