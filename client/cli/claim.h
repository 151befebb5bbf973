/* SPDX-License-Identifier: BSD-3-Clause */
/* claim.h - acquire, release, extend and wait, for scripts: the lock stays with a token, not with a
 * process. */
#ifndef DLOCK_CLI_CLAIM_H
#define DLOCK_CLI_CLAIM_H

#include "request.h"

int claim_acquire(request *asked);
int claim_release(request *asked);
int claim_extend(request *asked);
int claim_wait(request *asked);

#endif
