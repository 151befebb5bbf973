/* SPDX-License-Identifier: BSD-3-Clause */
/* leases.h - when the lease of each lock of this server ends (lease_index.h), with the names that
 * Redis gave us, and what FLUSHDB, SWAPDB and loading do to them all at once.
 *
 * Every server keeps the leases; only one that decides (server.h) acts on them, in work.c. Main
 * thread only. */
#ifndef DLOCK_LEASES_H
#define DLOCK_LEASES_H

#include "lease_index.h"
#include "redismodule.h"

/* From now on the lock of that name has this lease. */
lease_ref leases_add(int db, RedisModuleString *name, int64_t lease_ms, int64_t now_us);

/* The end of the lease of that length on server_boot_us(); false when ref refers to nothing any
 * more. A server that has taken over since counts from then. */
bool leases_end(lease_ref ref, int64_t lease_ms, int64_t *end_us);

/* The lease starts anew. ref must refer to something. */
void leases_restart(lease_ref ref, int64_t lease_ms, int64_t now_us);

/* The same hold under a new id: what is under way because of the old id comes to nothing. */
lease_ref leases_renew_id(lease_ref ref);

/* False when ref refers to nothing any more. */
bool leases_drop(lease_ref ref);

/* The lock that ref refers to: its database, and its name, which the caller frees. False when ref
 * refers to nothing any more. */
bool leases_lock(lease_ref ref, int *db, RedisModuleString **name);

/* The lease that ends first, and when. False when there is none. */
bool leases_first(lease_ref *ref, int64_t *end_us);

/* Asks again about this lease at that time. */
void leases_postpone(lease_ref ref, int64_t end_us);

/* This server begins to decide: it has loaded its file, or was promoted. The leases of all locks
 * start anew, since their holders may have been promised more than it has heard of. */
void leases_take_over(void);

/* A replica receives a whole dataset, which then takes the place of the one that it had: the locks
 * that it knew when this started are gone. */
void leases_replacement_started(void);
void leases_replacement_ended(void);

/* All locks of a database are gone, or all of all when it is negative, without a word about
 * each: their entries are dropped by leases_sweep(). */
void leases_flushed(int db);
void leases_swapped(int db, int other_db);

/* Drops entries of flushed locks until there are no more or the time is over. Calls on_drop for
 * each. True when there is more to do. */
bool leases_sweep(int64_t until_us, void (*on_drop)(lease_ref ref));

#endif
