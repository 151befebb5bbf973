/* SPDX-License-Identifier: BSD-3-Clause */
/* sessions.h - all sessions: their lives, and the holds that end with them.
 *
 * A tie links a hold to a session. The lease entry of the hold points to the tie, so a hold knows
 * its session at no cost. A tie lives only in the memory of the server: after a restart or a
 * failover the tie is gone, and the lease ends the lock. RENAME and MOVE end the tie as well. Main
 * thread only. */
#ifndef DLOCK_SESSIONS_H
#define DLOCK_SESSIONS_H

#include "lease_index.h"
#include "lock_state.h"
#include "session.h"

void sessions_init(void);

/* -- life */

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

/* Ends the session if it is forgotten, and has not ended yet. */
void sessions_end_if_forgotten(session *session);

/* May a wait of the session be served? Not if the session is away, or its time is over: it ends in
 * a moment, unless it is heard of. */
bool sessions_may_be_granted(const session *session, int64_t now_us);

/* Ends sessions whose time is over, and answers calls that were parked long enough. Returns false
 * when the time is over and more is due. */
bool sessions_run_due(int64_t until_us);
int64_t sessions_next_due(void);

/* The session has something to work off: its state has changed, or a loss is to be explained. */
void sessions_need_work(session *session);
session *sessions_first_with_work(void);
const session *sessions_last_with_work(void);

/* The session has more to work off, after all others. */
void sessions_let_others_work(session *session);

/* The session is done for now; an ended one on which nothing hangs any more is freed. */
void sessions_set_worked(session *session);

/* -- holds */

/* From now on the hold ends with the connection of client; another tie is undone. */
void sessions_tie_to_client(lease_ref hold, uint64_t client);

/* From now on the hold ends with the session, at end_us at the latest (SERVER_NEVER: no limit), and
 * grace_ms after the session went away (LOCK_NO_GRACE: not because of that). A limit that the hold
 * has from an earlier tie to the session is never lowered. */
void sessions_tie(lease_ref hold, session *session, int64_t grace_ms, int64_t end_us);

/* The hold goes on under a new id, and so does its tie, unless its session has ended. */
void sessions_rename(lease_ref hold);

/* The hold is over, by the will of its holder. Its lease entry must be dropped next. */
void sessions_forget(lease_ref hold);

/* The hold is over, without the will of its holder: a named session will be told. why is NULL if
 * the reason is to be found later, by a look at the key. token may be empty: not known. The lease
 * entry must be dropped next. */
void sessions_lose(lease_ref hold, int db, RedisModuleString *name, lock_token token,
                   const char *why);

/* When the hold ends because of its tie, or end_us if that is earlier. A session whose time is over
 * keeps its holds until it ends. */
int64_t sessions_hold_end(const void *tie, int64_t end_us, int64_t now_us);

/* The named session that the hold ends with, or NULL. */
const session *sessions_keeper(lease_ref hold);

/* May the hold end before its session does? */
bool sessions_has_limit(lease_ref hold);

/* Raises the limit of a hold that ends with a named session. Other holds stay as they are. */
void sessions_extend(lease_ref hold, int64_t end_us);

/* The holder was never told about the hold: from now on sessions_take_ended() returns it. */
void sessions_abandon(lease_ref hold);

/* Takes a hold of a session that has ended, or whose grant was abandoned. False: there are no more.
 * The caller ends the hold, which may be over already; until then its lease counts. */
bool sessions_take_hold(session *session, lease_ref *hold);
bool sessions_take_abandoned(lease_ref *hold);

/* Is there something to work off? */
bool sessions_have_work(void);

/* Arms, or disarms, the next hold with GRACE of a session that went away, or came back. False:
 * there are no more. */
bool sessions_move_graced(session *session);

/* The session that the hold is tied to, or NULL. */
const session *sessions_of(lease_ref hold);

typedef struct sessions_counts {
    int64_t sessions, away; /* named sessions */
    int64_t ties;
} sessions_counts;
extern sessions_counts sessions_count;

#endif
