/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting.h - from single attempts to an acquire with a deadline: by letting the service wait, or
 * by asking again after a random pause. */
#ifndef DLOCK_WAITING_H
#define DLOCK_WAITING_H

#include "backend.h"
#include "backoff.h"
#include "environment.h"

typedef struct waiting_rule {
    bool is_server_asked_to_wait;
    backoff pause;
    uint32_t io_timeout_ms;
} waiting_rule;

/* One attempt at least; none begins after of->deadline_us. DLOCK_OK: of->asked_us + the lease is
 * not over yet. DLOCK_BUSY: it was asked once, as there was no time to wait. Else DLOCK_TIMEOUT.
 * If the result is not DLOCK_OK and of->is_sent is set, the claim is to be withdrawn. */
dlock_status waiting_acquire(backend *to, claim *of, const waiting_rule *rule,
                             const environment *env);

/* Tries for one I/O timeout. */
dlock_status waiting_release(backend *to, claim *of, const waiting_rule *rule,
                             const environment *env);

#endif
