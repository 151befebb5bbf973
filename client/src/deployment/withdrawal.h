/* SPDX-License-Identifier: BSD-3-Clause */
/* withdrawal.h - releases that nobody waits for: of an acquire that was given up while its fate was
 * unknown, and of a release that was not answered. Each is sent again until it is answered or the
 * lease would have ended. All functions: locked (loop.h). */
#pragma once

#include "deployment/deployment.h"

/* Best effort: forgotten if there is no memory, or if there are too many already. */
void withdrawals_add(deployment *deployment, const char *name, const char *token,
                     uint32_t lease_ms);

/* Tries all of them once more, now, and waits for the replies, for an I/O timeout at most. After
 * that none is added. */
void withdrawals_finish(deployment *deployment);
