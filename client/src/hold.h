/* SPDX-License-Identifier: BSD-3-Clause */
/* hold.h - how long a lock is ours, as every thread may see it, and when to do something about it.
 *
 *     |---- held ------------------------|---- suspect ----|-- gone -->
 *   asked        due to be renewed    overdue              |<--lead-->| end of validity
 *
 * One number says it all: when it is gone. It is moved by whoever extends the lock, and only while
 * it has not come: what is gone stays gone. */
#ifndef DLOCK_HOLD_H
#define DLOCK_HOLD_H

#include "dlock.h"
#include <stdatomic.h>

/* How a lock is to be kept. 0: not. */
typedef struct hold_rule {
    uint32_t lease_ms, renew_every_ms, max_hold_ms;
    uint32_t io_timeout_ms; /* what a renewal may take before it is overdue */
} hold_rule;

typedef struct hold {
    hold_rule rule;
    bool has_lead; /* somebody is to be told in time, and telling takes time */
    /* So long before it is gone it is to be renewed, and so long before, that is overdue. */
    int64_t renew_before_us, suspect_before_us;
    /* The end of validity, less the lead; 0: not held. HOLD_OVER: it is gone for good. Negative:
     * the same, but in question: a session whose connection has ended. */
    atomic_int_least64_t gone_us;
    atomic_int why;     /* what the last renewal said, or how it was lost */
    atomic_int lost_fd; /* a timer; negative: nobody asked for it */

    /* Of the owner, and of the renewal while it is under way. */
    int64_t acquired_us;
    int64_t asked_us; /* the lease is counted from here */
    uint32_t lease_ms;
    uint32_t doubtful_ms; /* an extension by this much was not answered, and may come still; 0 */
} hold;

#define HOLD_OVER 1

void hold_init(hold *made, const hold_rule *rule);
void hold_free(hold *old);

/* Somebody wants to be told in time. What is renewed has that anyway. Not while it is held. */
void hold_set_lead(hold *of);

/* It was granted, asked for at asked_us; is_new: with a token that was never used before. */
void hold_begin(hold *of, int64_t asked_us, uint32_t lease_ms, bool is_new);

/* It was extended. False: too late, it is gone. */
bool hold_extend(hold *of, int64_t asked_us, uint32_t lease_ms, int64_t now_us);

/* An extension was sent, and may make it shorter. The result is for hold_restore(), if the server
 * says that it did nothing; if it does not answer, hold_note_doubt(). */
int64_t hold_doubt(hold *of, int64_t asked_us, uint32_t lease_ms);
void hold_restore(hold *of, int64_t gone_us, int64_t now_us);
void hold_note_doubt(hold *of, uint32_t lease_ms);

/* Until it is extended or lost, it is suspect, and nothing of it is certain. */
void hold_question(hold *of, bool is_in_question);

/* It is not ours any more. */
void hold_lose(hold *of, dlock_status why);

/* Its time has come: true for the one who is to tell. */
bool hold_expire(hold *of, int64_t now_us);

/* It is given back; none held. */
void hold_end(hold *of);

dlock_state hold_state(const hold *of, int64_t now_us);
int64_t hold_left_us(const hold *of, int64_t now_us);

/* When it becomes suspect (INT64_MAX: never) and gone; 0: it is gone for good, or not held. */
int64_t hold_suspect_at_us(const hold *of);
int64_t hold_gone_at_us(const hold *of);

/* When to renew it next, INT64_MAX: not; and for how long then. */
int64_t hold_renew_at_us(const hold *of);
uint32_t hold_renew_for_ms(const hold *of, int64_t now_us);

/* See dlock_lost_fd(). */
int hold_lost_fd(hold *of);

#endif
