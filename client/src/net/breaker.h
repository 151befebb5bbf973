/* SPDX-License-Identifier: BSD-3-Clause */
/* breaker.h - a circuit breaker: after some failures in a row a server is not tried for a moment,
 * so that not every call pays for the failure. Half open: after the pause a single caller may try
 * the server; for all other callers the circuit stays open. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* All zero: closed. */
typedef struct breaker {
    unsigned failures; /* in a row; not counted while the circuit is open */
    int64_t pause_us;  /* how long the circuit was open the last time */
    int64_t until_us;  /* open until then; 0: closed */
} breaker;

bool breaker_allows(breaker *breaker, int64_t now_us);
void breaker_note(breaker *breaker, bool is_success, int64_t now_us);
