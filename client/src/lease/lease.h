/* SPDX-License-Identifier: BSD-3-Clause */
/* lease.h - how long a lock is certainly held, as every thread may see.
 *
 *     |---- held ------------------------|---- suspect ----|-- gone -->
 *   asked        renewal due        renewal overdue        |<--lead-->| end of validity
 *
 * A lock ends with its own lease, or with the session that it is tied to (deployment/life.h), or
 * with whichever is first. Lead: where the program is to be told in time, the lock counts as gone a
 * little before its validity ends (validity_lead_us()).
 *
 * Extensions move the end later, never earlier; only a lead that is asked for while the lock is
 * held moves it earlier. Once the end is past, no extension moves it any more: a lock that was seen
 * as gone is never held again. Threads: lease_state() and lease_left_us() any; the other functions
 * locked (loop.h). */
#pragma once
#include "deployment/life.h"

/* How a lock is to be kept. 0: not. */
typedef struct lease_rule {
    uint32_t lease_ms, renew_every_ms, max_hold_ms;
    uint32_t io_timeout_ms; /* how long a renewal may take before the renewal is overdue */
} lease_rule;

typedef struct lease {
    lease_rule rule;     /* of the lock */
    uint32_t planned_ms; /* of this acquisition: instead of rule.lease_ms */
    uint32_t lease_ms;   /* of the last grant or extension */
    atomic_int why;      /* the last renewal, or how the lock was lost: a dlock_status */
    bool has_lead;       /* the program is told in time: with renewal, else the user sets it */
    /* The lock ends with the connection of its session, which has ended: suspect, and no time is
     * certain. */
    atomic_bool is_in_question;
    atomic_int_least64_t suspect_before_us; /* this long before own_end_us */
    /* End of validity less the lead, without the session. 0: not held. LEASE_OVER: gone for good.
     * DEADLINE_NEVER: the session alone counts. */
    atomic_int_least64_t own_end_us;
    struct lease_links *_Atomic links; /* NULL: none are needed */
    uint64_t fence;                    /* of the lock that is held; 0: none */
    int64_t acquired_us;
    int64_t asked_us; /* the lease counts from here */
} lease;

/* The session, the descriptor and the notifier of a lock that is kept, or whose loss somebody is to
 * be told of. By lease_link(). */
typedef struct lease_links {
    lease *lease;
    session_life *_Atomic life; /* of the session that the lock is tied to; NULL: of none */
    life_follower follower;
    struct watched_lock *watched; /* is told of changes; NULL: nobody */
    int lost_fd;                  /* a timer; negative: nobody wanted one */
} lease_links;

#define LEASE_OVER 1

void lease_init(lease *lease, const lease_rule *rule);
/* Memory of the caller's, until lease_free(). At most once. */
void lease_link(lease *lease, lease_links *links);
void lease_free(lease *lease);

/* How often the lock is renewed in this acquisition: in proportion to its lease. 0: never. */
static inline uint32_t lease_every_ms(const lease *lease) {
    const lease_rule *rule = &lease->rule;
    if (rule->renew_every_ms == 0) return 0;
    uint64_t every_ms = (uint64_t)rule->renew_every_ms * lease->planned_ms / rule->lease_ms;
    return every_ms > 0 ? (uint32_t)every_ms : 1;
}

/* Before an acquire: the lease that this acquisition is to have. 0: the lock's own. */
void lease_plan(lease *lease, uint32_t lease_ms);
/* The lock was granted, asked for at asked_us, but not later than now, whatever a store says. The
 * lease may be another than that of the rule. */
void lease_begin(lease *lease, int64_t asked_us, uint32_t lease_ms, int64_t now_us);
/* The lock, which has links, is tied to a session, and ends with this life of it. is_endless: the
 * lock has no lease of its own. Does nothing if the lock is gone. */
void lease_follow(lease *lease, session_life *life, bool is_endless, int64_t now_us);
/* The server may not know of the tie any more: the end stays where it is. Does nothing if the lock
 * is not tied. */
void lease_unfollow(lease *lease, int64_t now_us);
/* The lock was extended, and ends not sooner than before. A question stays: a server that has not
 * noticed the end of a session extends the lock too. False: too late, the lock is gone. */
bool lease_extend(lease *lease, int64_t asked_us, uint32_t lease_ms, int64_t now_us);
void lease_question(lease *lease, bool is_in_question);
/* The lock is gone for good. The program is told. */
void lease_lose(lease *lease, dlock_status why);
/* The lock is given back. */
void lease_end(lease *lease);

dlock_state lease_state(const lease *lease, int64_t now_us);
int64_t lease_left_us(const lease *lease, int64_t now_us);

/* When the lock becomes suspect (without renewal: not before gone; INT64_MAX: not held) and gone
 * (long ago if gone for good or not held). */
int64_t lease_suspect_at_us(const lease *lease);
int64_t lease_gone_at_us(const lease *lease);
/* When its own lease makes the lock suspect; INT64_MAX: never, since the life tells (life.h). */
int64_t lease_own_suspect_at_us(const lease *lease);
/* The lease counts from here; that of a session, from its last heartbeat. Threads: any. */
int64_t lease_asked_us(const lease *lease);

/* Why the lock is suspect or gone; never DLOCK_OK. */
dlock_status lease_why(const lease *lease, dlock_state state);

/* When to renew next (INT64_MAX: never), and for how long then (0: a renewal would gain too little,
 * see max_hold_ms). */
int64_t lease_renew_at_us(const lease *lease);
uint32_t lease_renew_for_ms(const lease *lease, int64_t now_us);

/* How much of its own lease is left, whatever the session has cut off. */
uint32_t lease_own_left_ms(const lease *lease, int64_t now_us);

/* See dlock_lost_fd(). The lease has links. */
int lease_lost_fd(lease *lease);
