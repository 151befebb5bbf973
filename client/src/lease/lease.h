/* SPDX-License-Identifier: BSD-3-Clause */
/* lease.h - how long a lock is certainly held, as every thread may see.
 *
 *     |---- held ------------------------|---- suspect ----|-- gone -->
 *   asked        renewal due        renewal overdue        |<--lead-->| end of validity
 *
 * Lead: where the program is to be told in time, the lock counts as gone a fiftieth of the lease,
 * 50 ms at most, before its validity ends.
 *
 * The atomic gone_us decides, for all threads. Extensions move it later, never earlier; only
 * a lead that is asked for while the lock is held moves it earlier. Once gone_us is past, no
 * extension moves it any more: a lock that was seen as gone is never held again. Threads:
 * lease_state() and lease_left_us() any; the other functions locked (loop.h). */
#pragma once
#include "dlock.h"
#include <stdatomic.h>

/* The end of the validity of a lease requested at asked_us, less an allowance for a server's clock
 * that runs faster than ours: 1 % of the lease and 2 ms. Pure. */
int64_t validity_end_us(int64_t asked_us, uint32_t lease_ms);

/* How a lock is to be kept. 0: not. */
typedef struct lease_rule {
    uint32_t lease_ms, renew_every_ms, max_hold_ms;
    uint32_t io_timeout_ms; /* how long a renewal may take before the renewal is overdue */
    bool is_watched;        /* the program is to be told in time, as with renewal */
} lease_rule;

typedef struct lease {
    lease_rule rule; /* of this acquisition */
    bool has_lead;
    uint32_t own_lease_ms, own_renew_every_ms; /* of the lock */
    uint32_t lease_ms;                         /* of the last grant or extension */
    int64_t renew_before_us;                   /* this long before the lock is gone */
    atomic_int_least64_t suspect_before_us;
    /* The earlier of own_end_us and session_end_us. 0: not held. LEASE_OVER: gone for good.
     * Negative: in question, since the lock ends with the connection of its session, which has
     * ended. */
    atomic_int_least64_t gone_us;
    /* End of validity less the lead: of the lock's own lease, and of the session that the lock is
     * tied to. DEADLINE_NEVER: there is none. */
    int64_t own_end_us, session_end_us;
    atomic_int why; /* what the last renewal said, or how the lock was lost: a dlock_status */
    int lost_fd;    /* a timer; negative: nobody wanted one */
    int64_t acquired_us;
    int64_t asked_us; /* the lease counts from here */
} lease;

#define LEASE_OVER 1

void lease_init(lease *lease, const lease_rule *rule);
void lease_free(lease *lease);

/* Before an acquire: the lease that this acquisition is to have, with renewals in proportion. 0:
 * the lock's own. */
void lease_plan(lease *lease, uint32_t lease_ms);
/* The lock was granted, asked for at asked_us. The lease may be another than that of the rule. */
void lease_begin(lease *lease, int64_t asked_us, uint32_t lease_ms, int64_t now_us);
/* The lock is tied to a session that was renewed at sent_us, for timeout_ms. is_endless: the lock
 * has no lease of its own. Right after lease_begin(), and after each renewal of the session. Does
 * nothing if the lock is gone. */
void lease_follow_session(lease *lease, int64_t sent_us, uint32_t timeout_ms, bool is_endless,
                          int64_t now_us);
/* The lock was extended, and ends not sooner than before. A question stays: a server that has not
 * noticed the end of a session extends the lock too. False: too late, the lock is gone. */
bool lease_extend(lease *lease, int64_t asked_us, uint32_t lease_ms, int64_t now_us);
/* While in question, the lock is suspect, and no time is certain. */
void lease_question(lease *lease, bool is_in_question);
/* The lock is gone for good. */
void lease_lose(lease *lease, dlock_status why);
/* The lock is given back. */
void lease_end(lease *lease);

dlock_state lease_state(const lease *lease, int64_t now_us);
int64_t lease_left_us(const lease *lease, int64_t now_us);

/* When the lock becomes suspect (without renewal: not before gone; INT64_MAX: not held) and gone
 * (long ago if gone for good or not held). */
int64_t lease_suspect_at_us(const lease *lease);
int64_t lease_gone_at_us(const lease *lease);

/* Why the lock is suspect or gone; never DLOCK_OK. */
dlock_status lease_why(const lease *lease, dlock_state state);

/* When to renew next (INT64_MAX: never), and for how long then (0: a renewal would gain too little,
 * see max_hold_ms). */
int64_t lease_renew_at_us(const lease *lease);
uint32_t lease_renew_for_ms(const lease *lease, int64_t now_us);

/* See dlock_lost_fd(). */
int lease_lost_fd(lease *lease);
