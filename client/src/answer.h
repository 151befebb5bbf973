/* SPDX-License-Identifier: BSD-3-Clause */
/* answer.h - what an error of the server means for a lock. Pure. */
#ifndef DLOCK_ANSWER_H
#define DLOCK_ANSWER_H

#include "dlock.h"

typedef struct answer_meaning {
    dlock_status status;
    bool is_passing; /* may be different in a moment: worth another attempt */
} answer_meaning;

/* text: as the server sent it, e.g. "NOAUTH Authentication required." */
answer_meaning answer_status_of_error(const char *text);

#endif
