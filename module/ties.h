/* SPDX-License-Identifier: BSD-3-Clause */
/* ties.h - the holds that end with a session.
 *
 * A tie links a hold to a session. The lease entry of the hold points to the tie, so a hold knows
 * its session at no cost. A tie lives only in the memory of the server: after a restart or a
 * failover the tie is gone, and the lease ends the lock. RENAME and MOVE end the tie as well. Main
 * thread only. */
#ifndef DLOCK_TIES_H
#define DLOCK_TIES_H

#include "lease_index.h"
#include "lock_state.h"
#include "session.h"

/* From now on the hold ends with the connection of client; another tie is undone. */
void ties_bind_to_client(lease_ref hold, uint64_t client);

/* From now on the hold ends with the session, at end_us at the latest (SERVER_NEVER: no limit), and
 * grace_ms after the session went away (LOCK_NO_GRACE: not because of that). A limit that the hold
 * has from an earlier tie to the session is never lowered. */
void ties_bind(lease_ref hold, session *session, int64_t grace_ms, int64_t end_us);

/* The hold goes on under a new id, and so does its tie, unless its session has ended. */
void ties_rename(lease_ref hold);

/* The hold is over, by the will of its holder. Its lease entry must be dropped next. */
void ties_forget(lease_ref hold);

/* The hold is over, without the will of its holder: a named session will be told. why is NULL if
 * the reason is to be found later, by a look at the key. token may be empty: not known. The lease
 * entry must be dropped next. */
void ties_lose(lease_ref hold, int db, RedisModuleString *name, lock_token token, const char *why);

/* When the hold ends because of its tie, or end_us if that is earlier. A session whose time is over
 * keeps its holds until it ends. */
int64_t ties_hold_end(const void *tie, int64_t end_us, int64_t now_us);

/* The named session that the hold ends with, or NULL. */
const session *ties_keeper(lease_ref hold);

/* May the hold end before its session does? */
bool ties_has_limit(lease_ref hold);

/* Raises the limit of a hold that ends with a named session. Other holds stay as they are. */
void ties_extend(lease_ref hold, int64_t end_us);

/* The holder was never told about the hold: ties_take_abandoned() returns it. */
void ties_abandon(lease_ref hold);

/* Takes a hold of a session that has ended, or whose grant was abandoned. False: there are no more.
 * The caller ends the hold, which may be over already; until then its lease counts. */
bool ties_take_hold(session *session, lease_ref *hold);
bool ties_take_abandoned(lease_ref *hold);
bool ties_have_abandoned(void);

/* Arms, or disarms, the next hold with GRACE of a session that went away, or came back. False:
 * there are no more. *revived: the hold, if it was over already and goes on; else none. */
bool ties_move_graced(session *session, lease_ref *revived);

/* The session that the hold is tied to, or NULL. */
const session *ties_session(lease_ref hold);

int64_t ties_count(void);

#endif
