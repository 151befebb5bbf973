/* SPDX-License-Identifier: BSD-3-Clause */
/* left.h - connections with answers to come that nobody waits for. What is about the same subject
 * goes on where it was left: it cannot overtake what was sent before. One that is not answered
 * stays until it is, or ends: nothing is taken back behind it, as somebody may count on it. */
#ifndef DLOCK_LEFT_H
#define DLOCK_LEFT_H

#include "conn.h"
#include <poll.h>

/* After so many, no more should be left. */
enum { LEFT_CROWD = 64 };

typedef struct left_conn {
    conn *kept;
    uint64_t subject;
    int64_t until_us;
} left_conn;

/* All zero: none. */
typedef struct left_conns {
    left_conn *each;
    struct pollfd *polled;
    size_t count, capacity;
} left_conns;

typedef struct left_news {
    bool is_answered; /* some were, since it was looked at last */
    bool is_late;     /* of others, the time is over */
    bool is_crowded;
} left_news;

/* False: no memory; it is not added. */
bool left_add(left_conns *to, conn *added, uint64_t subject, int64_t until_us);
/* Waits a moment for their answers: what was sent on a connection that is closed before may never
 * be read. */
void left_free(left_conns *old);

/* Reads what has arrived, and closes those that have ended. */
left_news left_look(left_conns *at, int64_t now_us);

/* After a look: the one about this, or one that is settled; it is not left any more. NULL: none. */
conn *left_take(left_conns *from, uint64_t subject);
conn *left_take_settled(left_conns *from);

/* Sent on any of them, behind what others have left there. False: there is none to take it. */
bool left_send(left_conns *by, const command *requests, int count);

#endif
