/* SPDX-License-Identifier: BSD-3-Clause */
/* claim.h - acquire, release, extend and wait, for scripts: a token holds the lock, not a
 * process. */
#ifndef DLOCK_CLI_CLAIM_H
#define DLOCK_CLI_CLAIM_H

#include "request.h"

int claim_acquire(request *request);
int claim_release(request *request);
int claim_extend(request *request);
int claim_wait(request *request);

#endif
