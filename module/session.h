/* SPDX-License-Identifier: BSD-3-Clause */
/* session.h - the session as an object: the presence of a process at this server.
 *
 * A session is named by its client (DLOCK.SESSION), or it is the anonymous one of a connection
 * (ACQUIRE ... SESSION without VIA), which has holds only and ends with the connection.
 *
 *   PRESENT   its connection is open
 *   AWAY      its connection has closed: a named session gets nothing, and keeps what it has
 *   ENDED     its time is over, or its client has ended it; work.c ends what hung on it, in
 *             portions, and then the session is freed
 *
 * Objects that hang on a session are in its lists. Whoever changes the state of a session only
 * moves the session to the list of those that have work (sessions.c); the lists are worked off in
 * portions, because each may have a hundred thousand objects. */
#ifndef DLOCK_SESSION_H
#define DLOCK_SESSION_H

#include "heap.h"
#include "list.h"
#include "redismodule.h"
#include <stdbool.h>
#include <stdint.h>

enum { SESSION_ID_MIN = 16, SESSION_ID_MAX = 64, SESSION_ID_SHOWN = 8 };

typedef enum session_state { SESSION_PRESENT, SESSION_AWAY, SESSION_ENDED } session_state;

typedef struct session {
    heap_node due; /* when sessions_run_due() looks at it; must be the first member */
    session_state state;
    int64_t born; /* number of this life; 0: anonymous */
    int64_t timeout_ms;
    int64_t end_us;     /* end of the session unless it is heard of before */
    uint64_t overdue;   /* run of sessions_run_due() that found its time over; 0: none */
    int64_t away_us;    /* since when it is away; only for AWAY */
    uint64_t client;    /* its connection; 0: none */
    uint32_t absences;  /* how often it has gone away; never 0 after the first time */
    uint32_t demotions; /* of this server before the session began; more by now: it is forgotten */
    struct session *prev, *next; /* other sessions of the same connection */
    struct session_call *call;   /* of mailbox.c: the parked DLOCK.SESSION, or NULL */
    RedisModuleString *user;     /* who opened the session; NULL: anonymous */
    list holds, graced, armed;   /* ties: all others; with GRACE; with GRACE, about to end */
    list waits, aside;           /* session_wait: in line; passed over while the session is away */
    list watches;                /* watch */
    list unexplained;            /* loss: not yet known why */
    list mailbox;                /* event, by number */
    uint32_t hold_count;         /* of the ties in all three lists */
    uint32_t wait_count;         /* in line, and aside */
    int64_t event_count;         /* of the mailbox */
    int64_t last_number;         /* of the newest event */
    int64_t written;             /* events up to here have been written to a connection */
    list_node *untaken; /* unless present: the next event to look at for a grant to take back */
    list_node in_all;   /* list of all sessions, until it has ended */
    list_node in_work;  /* list of sessions that have work */
    bool has_work;
    bool is_user_in_acl; /* a module may have authenticated a user of its own */
    uint8_t id_length;
    char id[SESSION_ID_MAX];
} session;

#define SESSION_NONE "NOSESSION this server knows no such session: open it with DLOCK.SESSION"

static inline bool session_is_present(const session *session) {
    return session->state == SESSION_PRESENT;
}

#endif
