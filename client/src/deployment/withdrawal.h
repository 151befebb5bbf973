/* SPDX-License-Identifier: BSD-3-Clause */
/* withdrawal.h - releases that nobody waits for: of an acquire that was given up while its fate was
 * unknown, and of a release that was not answered. Each is sent again until it is answered or the
 * lease would have ended. All functions: locked (loop.h). */
#ifndef DLOCK_DEPLOYMENT_WITHDRAWAL_H
#define DLOCK_DEPLOYMENT_WITHDRAWAL_H

#include "deployment/deployment.h"

typedef struct withdrawals withdrawals;

/* NULL: no memory. The deployment must outlive it. */
withdrawals *withdrawals_new(deployment *deployment);
/* Abandons what is left; withdrawals_hurry() before. */
void withdrawals_free(withdrawals *withdrawals);

/* Best effort: forgotten if there is no memory, or if there are too many already. */
void withdrawals_add(withdrawals *withdrawals, const char *name, const char *token,
                     uint32_t lease_ms);

size_t withdrawals_count(const withdrawals *withdrawals);
/* Tries all of them once more, now; the waiter is ready once none is left. */
void withdrawals_hurry(withdrawals *withdrawals, waiter *waiter);

#endif
