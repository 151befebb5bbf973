/* SPDX-License-Identifier: BSD-3-Clause */
/* error_reply.h - what an error of the server means for a lock. Pure. */
#pragma once
#include "dlock.h"
#include "net/resp.h"

typedef struct error_meaning {
    dlock_status status;
    bool is_transient; /* may be different in a moment: worth another attempt */
} error_meaning;

/* error: a REPLY_ERROR as the server sent it, e.g. "NOAUTH Authentication required." */
error_meaning error_reply_meaning(const reply *error);
