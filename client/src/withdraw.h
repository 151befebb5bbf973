/* SPDX-License-Identifier: BSD-3-Clause */
/* withdraw.h - releases that nobody waits for any more: a claim was sent, no answer came, and the
 * caller was told DLOCK_IN_DOUBT. They go on in the background until the server has answered, or
 * until the lease they may have got is over. */
#ifndef DLOCK_WITHDRAW_H
#define DLOCK_WITHDRAW_H

#include "backend.h"
#include "environment.h"

typedef struct withdrawals withdrawals;

/* No thread yet. NULL: no memory. The backend must outlive it. */
withdrawals *withdrawals_new(backend *from, const environment *env, uint32_t io_timeout_ms);

/* Each gets one more attempt, within one I/O timeout in all. */
void withdrawals_free(withdrawals *old);

/* Best effort: with no memory, no thread, or too many of them, the end of the lease must do. */
void withdrawals_add(withdrawals *to, const claim *of);

#endif
