/* SPDX-License-Identifier: BSD-3-Clause */
/* waiters.h - the outcome of a wait, for a blocked client (blocked.h) and for a session
 * (session_waits.h) alike. Each function takes the waiter out of its queues. */
#ifndef DLOCK_WAITERS_H
#define DLOCK_WAITERS_H

#include "blocked.h"
#include "session_waits.h"

/* The holds are in the places of the waiter. */
static inline void waiters_grant(waiter *granted, int64_t fence, int64_t lease_end_us) {
    if (granted->request.via != NULL)
        session_waits_grant(granted, fence);
    else
        blocked_grant(granted, fence, lease_end_us);
}

/* May the user who waits still take the lock? */
static inline bool waiters_is_permitted(waiter *waiting) {
    return waiting->request.via != NULL ? session_waits_is_permitted(waiting)
                                        : blocked_is_permitted(waiting);
}

#define WAITERS_TIMEOUT  "timeout"
#define WAITERS_RELEASED "released"

/* The wait is over without the lock. */
static inline void waiters_end(waiter *ended, const char *why) {
    if (ended->request.via != NULL)
        session_waits_end(ended, why);
    else
        blocked_refuse(ended);
}

/* Another call with the same token has taken over the place in the queue. */
static inline void waiters_supersede(waiter *older) {
    if (older->request.via != NULL)
        session_waits_drop(older);
    else
        blocked_supersede(older);
}

static inline void waiters_send_away(waiter *sent, const char *error) {
    if (sent->request.via != NULL)
        session_waits_end(sent, error);
    else
        blocked_send_away(sent, error);
}

#endif
