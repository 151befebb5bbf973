/* SPDX-License-Identifier: BSD-3-Clause */
/* sessions.h - ties between holds and connections: a tied hold ends with its connection.
 *
 * A tie lives only in the memory of the server: after a restart or a failover the tie is gone,
 * and the lease ends the lock. RENAME and MOVE end the tie as well. Main thread only. */
#ifndef DLOCK_SESSIONS_H
#define DLOCK_SESSIONS_H

#include "lease_index.h"
#include "redismodule.h"

void sessions_init(void);

/* From now on the hold ends with the connection of client; a tie to another connection is
 * undone. */
void sessions_bind(lease_ref hold, uint64_t client);

/* The hold goes on under a new id, and so does its tie, if the connection is alive. */
void sessions_rename(uint64_t old_id, lease_ref hold);

/* The hold with this id is over. */
void sessions_forget(uint64_t id);

/* This server is a replica from now on: only leases end locks. */
void sessions_forget_all(void);

/* The connection has ended, and so do all holds tied to it: from now on sessions_take_ended()
 * returns them. */
void sessions_end_all_of(uint64_t client);

/* The holder was never told about the hold: from now on sessions_take_ended() returns it. */
void sessions_abandon(lease_ref hold);

/* Takes a hold whose connection has ended, or whose grant was abandoned. False: there is none.
 * The hold may be over already, or have a new id. */
bool sessions_take_ended(lease_ref *hold);

/* The client whose connection the hold is tied to, or 0. */
uint64_t sessions_client(uint64_t id);

int64_t sessions_count(void);

#endif
