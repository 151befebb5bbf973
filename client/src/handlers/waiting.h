/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting.h - the last handler of every chain: makes one acquire with a deadline out of single
 * attempts, parked in the server or repeated after a random pause, and withdraws an acquire or
 * release that was given up in doubt. */
#pragma once
#include "base/deadline.h"
#include "handlers/chain.h"

typedef struct waiting {
    deployment *deployment;
    bool is_parked; /* let the server wait, where possible */
    backoff pause;
} waiting;

/* The call's attempt is prepared, with replicas and session set by the API; name, token, lease and
 * fence come from the call. */
dlock_handler waiting_handler(waiting *waiting);
