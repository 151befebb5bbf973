/* SPDX-License-Identifier: BSD-3-Clause */
/* votes.h - what several servers said to the same question, and what that means. Pure.
 *
 * A majority of all of them decides, of those that are dead or were not asked as well: any two
 * majorities have a server in common. Of 3 servers 1 may fail, of 5 two, of 4 only one. */
#ifndef DLOCK_VOTES_H
#define DLOCK_VOTES_H

#include "dlock.h"

typedef struct votes {
    size_t voters;
    size_t yes, no;
    size_t silent, unreachable; /* sent but not answered; not sent */
    size_t failed;              /* another failure, that may pass */
    size_t lasting;             /* a failure that will not pass by asking again */
    size_t canceled;
    dlock_status failure; /* the first lasting one */
} votes;

size_t votes_quorum(size_t voters);

/* Yes: DLOCK_OK. No: DLOCK_BUSY or DLOCK_LOST. */
void votes_add(votes *to, dlock_status answer, bool is_passing);

/* DLOCK_OK: a majority said yes. no: it cannot come about any more, because of those who said no.
 * A lasting failure: because of those who will never say yes. DLOCK_CANCELED. Else
 * DLOCK_NO_QUORUM, which may pass. */
dlock_status votes_result(const votes *of, dlock_status no);

/* Whoever has not been asked yet could still make it DLOCK_OK, or no. */
bool votes_are_open(const votes *of, dlock_status no);

/* "2 ok, 2 busy, 1 unreachable"; the words for yes and no are the caller's. Always with an end. */
void votes_describe(const votes *of, const char *yes, const char *no, char *text, size_t size);

#endif
