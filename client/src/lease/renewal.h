/* SPDX-License-Identifier: BSD-3-Clause */
/* renewal.h - keeps locks while they are held. A lock that is tied to a session needs no command:
 * its lease follows the session (presence.h). Other leases are extended in the background. All
 * functions: locked (loop.h).
 *
 * The attempt of a handle has two users in turn: the renewal while the lock is held, and the
 * owner's calls. The API gives and takes it like this:
 *
 *   acquire   loop_start_background(), the call, lease_begin(), renewal_begin()
 *   extend    DLOCK_LOST if the lease is gone; renewal_pause(), the call, lease_extend(),
 *             renewal_resume(). If renewal_pause() says no, dlock_extend() fails with
 *             DLOCK_UNREACHABLE without a call: the renewal needs the attempt to tie the lock again
 *   release   renewal_end(), the call */
#pragma once
#include "deployment/presence.h"
#include "lease/notifier.h"

typedef struct renewal {
    deployment *deployment;
    loop_timer timer; /* the next wave */
    heap due;
} renewal;

/* A lock that is kept, inside its handle. {0} but for the first group. */
typedef struct kept_lock {
    lease *lease;
    attempt *attempt; /* the handle's; name, token, replicas and tie are the lock's */

    /* Private to renewal.c. */
    renewal *renewal; /* NULL: not kept */
    heap_node node;
    bool is_under_way;
    bool is_untied; /* the server may have forgotten the tie: an ACQUIRE with the token tells */
    bool is_paused;
    int64_t pause_ms; /* before the next attempt; 0: the last attempt succeeded */
} kept_lock;

void renewal_init(renewal *renewal, deployment *deployment);

/* The lock is held: lease_begin() was called. A lock with renew_every_ms 0 is kept for its tie
 * only. */
void renewal_begin(renewal *renewal, kept_lock *kept);
/* The lock is given back: an attempt under way is abandoned, and the tie ends. Does nothing if the
 * lock is not kept, like the next two. */
void renewal_end(kept_lock *kept);

/* The owner extends the lock: an extension under way is abandoned, and the attempt is the owner's
 * until renewal_resume(). False: the lock is to be tied again; nothing has changed. */
bool renewal_pause(kept_lock *kept);
void renewal_resume(kept_lock *kept);
