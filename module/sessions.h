/* SPDX-License-Identifier: BSD-3-Clause */
/* sessions.h - which holds end with which connection.
 *
 * A tie lives in this server's memory only: after a restart or a failover nobody has the session,
 * and the lease ends the lock. RENAME and MOVE end the tie as well. Main thread only. */
#ifndef DLOCK_SESSIONS_H
#define DLOCK_SESSIONS_H

#include "lease_index.h"
#include "redismodule.h"

void sessions_init(void);

/* From now on the hold ends with this client's connection; a tie to another one is undone. */
void sessions_bind(lease_ref hold, uint64_t client);

/* The hold goes on under a new id, and so does its tie, if the connection lives. */
void sessions_rename(uint64_t old_id, lease_ref hold);

/* That hold is over. */
void sessions_forget(uint64_t id);

/* The connection has ended, and so do the holds that are tied to it: they are among those of
 * sessions_take_ended() from now on. */
void sessions_end_all_of(uint64_t client);

/* The holder of this hold was never told of it: it is among those of sessions_take_ended() from
 * now on. */
void sessions_abandon(lease_ref hold);

/* Takes one hold whose connection has ended. False when there is none. It may be over already, or
 * have a new id. */
bool sessions_take_ended(lease_ref *hold);
bool sessions_has_ended(void);

/* The client that hold is tied to, or 0. */
uint64_t sessions_client(uint64_t id);

int64_t sessions_count(void);

#endif
