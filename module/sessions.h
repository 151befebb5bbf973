/* SPDX-License-Identifier: BSD-3-Clause */
/* sessions.h - all sessions: how they begin, live and end. What hangs on a session is in ties.h
 * (its holds), session_waits.h, watches.h and mailbox.h. Main thread only. */
#ifndef DLOCK_SESSIONS_H
#define DLOCK_SESSIONS_H

#include "session.h"

void sessions_init(void);

/* The oldest session that has not ended, and the next younger one; NULL: no more. Forgotten
 * sessions are among them, in front. */
const session *sessions_first(void);
const session *sessions_next(const session *listed);

/* The living session with the id, or NULL. */
session *sessions_find(const char *id, size_t length);

/* Makes a session, which is not heard of yet. */
session *sessions_make(const char *id, size_t length, int64_t timeout_ms, RedisModuleString *user);

/* The session is heard of, over the connection of client: it lives for its timeout from now_us on,
 * and is not away. */
void sessions_hear(session *session, uint64_t client, int64_t now_us);

/* The session ends now. What hangs on it is worked off in portions. */
void sessions_end(session *session);

/* The connection has ended: its anonymous session ends, and its named ones are away; of very many,
 * some only when sessions_run_gone() comes to them. False: the time is over, and more are left. */
void sessions_client_gone(uint64_t client);
bool sessions_run_gone(int64_t until_us);

/* This server is a replica from now on, and all sessions are forgotten: nobody finds them, they get
 * nothing, and only leases end their locks, also if the server is a master again before that is
 * worked off. sessions_run_forgotten() ends them. False: the time is over, and more are left. */
void sessions_forget_all(void);
bool sessions_run_forgotten(int64_t until_us);
bool sessions_is_forgotten(const session *session);

/* Has the session ended, or is it forgotten? */
bool sessions_has_ended(const session *session);

/* Ends the session if it is forgotten, and has not ended yet. */
void sessions_end_if_forgotten(session *session);

/* May a wait of the session be served? Not if the session is away, or its time is over: it ends in
 * a moment, unless it is heard of. */
bool sessions_may_be_granted(const session *session, int64_t now_us);

/* Ends sessions whose time is over, and answers calls that were parked long enough. Returns false
 * when the time is over and more is due. */
bool sessions_run_due(int64_t until_us);
int64_t sessions_next_due(void);

/* How long a session goes on at a time while the server may hold its heartbeats up. */
enum { SESSIONS_PATIENCE_US = 10000 };

/* The anonymous session of the connection, which is made if there is none. It exists only while it
 * has holds: whoever takes one away calls the second function. */
session *sessions_of_client(uint64_t client);
void sessions_free_if_unused(session *session);

/* The session has something to work off: its state has changed, or a loss is to be explained. */
void sessions_need_work(session *session);
session *sessions_first_with_work(void);
const session *sessions_last_with_work(void);

/* The session has more to work off, after all others. */
void sessions_let_others_work(session *session);

bool sessions_have_work(void);

/* The session is done for now; an ended one on which nothing hangs any more is freed. */
void sessions_set_worked(session *session);

typedef struct sessions_counts {
    int64_t sessions, away; /* named sessions */
    int64_t anonymous;
} sessions_counts;
extern sessions_counts sessions_count;

#endif
