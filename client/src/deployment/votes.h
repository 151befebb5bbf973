/* SPDX-License-Identifier: BSD-3-Clause */
/* votes.h - how several servers replied to the same command, and what a majority says. Pure.
 *
 * A majority of all servers decides, dead servers and servers without a request included: any two
 * majorities have a server in common. Of 3 servers 1 may fail, of 5 two, of 4 only one. */
#pragma once

#include "dlock.h"

typedef struct votes {
    size_t voters;
    size_t yes, no;
    size_t unanswered, unreachable; /* sent, without a reply; not sent */
    size_t failed;                  /* another failure, which another attempt may not meet */
    size_t lasting;                 /* a failure that another attempt will meet again */
    dlock_status failure;           /* the first lasting one */
} votes;

size_t votes_quorum(size_t voters);

/* Yes: DLOCK_OK. No: DLOCK_BUSY or DLOCK_LOST. */
void votes_add(votes *votes, dlock_status reply, bool is_transient);

/* DLOCK_OK: a majority said yes. no: servers that said no make a majority impossible. A lasting
 * failure: servers that will never say yes make a majority impossible. Else DLOCK_NO_QUORUM, which
 * another attempt may not meet. */
dlock_status votes_result(const votes *votes, dlock_status no);

/* Could this many more replies still make the result DLOCK_OK, or no? */
bool votes_are_open(const votes *votes, dlock_status no, size_t more);

/* "2 ok, 2 busy, 1 unreachable"; the words for yes and no are the caller's. Always with an end. */
void votes_describe(const votes *votes, const char *yes, const char *no, char *text, size_t size);
