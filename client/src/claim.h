/* SPDX-License-Identifier: BSD-3-Clause */
/* claim.h - a call as the library sees it: what handlers see, and what is none of their
 * business. */
#ifndef DLOCK_CLAIM_H
#define DLOCK_CLAIM_H

#include "dlock_spi.h"
#include "interrupt.h"

typedef struct claim {
    dlock_call call; /* must be the first: handlers have a pointer to it */
    interrupt stop;
    bool is_passing;      /* of a failure: another attempt may succeed */
    bool is_sent;         /* a server was told and did not answer: it may hold the lock */
    bool is_given_up;     /* its token is being withdrawn, and must not be asked for again */
    bool is_token_chosen; /* by the caller, who may use it again: it must not be withdrawn later */
} claim;

#endif
