/* SPDX-License-Identifier: BSD-3-Clause */
/* life.h - how long a session certainly lives, as every thread may see.
 *
 * A life is an unbroken run of heartbeats of one session. The leases of all locks that are tied to
 * the session read their end from its life, so a heartbeat moves one number, however many locks
 * there are. A life whose end is past, or whose session the server has forgotten, is never renewed:
 * the next heartbeat begins another life, and locks have to prove that they belong to it.
 *
 * Threads read the three times without the mutex, and may do so although the lock is just being
 * given back. So the memory of a life is used again for another life, but is not freed before the
 * deployment is. All functions: locked (loop.h). */
#pragma once
#include "deployment/deployment.h"

/* A lease that reads a life, inside the lease. {0} but for tell. */
typedef struct life_follower {
    /* The life has not been renewed in time; of armed followers: or it was renewed. */
    void (*tell)(struct life_follower *follower);
    list_node node;
} life_follower;

typedef struct session_life {
    atomic_int_least64_t renewed_us; /* the last answered heartbeat was sent then */
    atomic_int_least64_t suspect_us; /* the reply to the next one is overdue from then on */
    atomic_int_least64_t end_us;     /* less a lead: see validity_lead_us() */
    uint32_t timeout_ms;

    /* Private to life.c. */
    deployment *deployment;
    struct session_life *next; /* of the deployment */
    size_t shares;
    size_t lock_count;
    list armed, unarmed; /* life_follower */
    loop_timer timer;    /* due at suspect_us */
} session_life;

/* A heartbeat was sent at sent_us and answered. The caller gets a share. NULL: no memory. */
session_life *life_begin(deployment *deployment, int64_t sent_us);
/* The same for a later heartbeat. False: too late, the life is over. */
bool life_renew(session_life *life, int64_t sent_us);

/* Each share is given back by life_free(). Both do nothing to NULL. */
session_life *life_share(session_life *life);
void life_free(session_life *life);

/* For leases, which have a share. is_armed: told of each renewal. */
void life_follow(session_life *life, life_follower *follower, bool is_armed);
void life_leave(session_life *life, life_follower *follower);

/* The last thing that a deployment does. */
void lives_free(session_life *first);
