/* SPDX-License-Identifier: BSD-3-Clause */
/* sessions.h - which locks end with which connection.
 *
 * A grant is known by its fence, which no other grant has. The tie lives in this server's memory
 * only: after a restart or a failover nobody has the session, and the lease is what ends the
 * lock. RENAME and MOVE end the tie as well. Main thread only. */
#ifndef DLOCK_SESSIONS_H
#define DLOCK_SESSIONS_H

#include "redismodule.h"
#include <stdint.h>

void sessions_init(void);

/* From now on the lock ends with this client's connection; a tie to another one is undone. */
void sessions_bind(int64_t fence, uint64_t client, int db, const RedisModuleString *name);

/* That grant is over. */
void sessions_forget(int64_t fence);

/* The connection has ended: so do its locks, a moment later. */
void sessions_end_all_of(uint64_t client);

/* All locks of a database, or of all when it is negative, are gone without a word about each. */
void sessions_flush(int db);

/* The locks of two databases have changed places. */
void sessions_swap(int db, int other_db);

/* The client that grant is tied to, or 0. */
uint64_t sessions_client(int64_t fence);

int64_t sessions_count(void);

#endif
