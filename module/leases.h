/* SPDX-License-Identifier: BSD-3-Clause */
/* leases.h - the end of the lease of each holder on the server (lease_index.h), with the name of
 * the lock; and the effects of FLUSHDB, SWAPDB and loading on all leases at once.
 *
 * Every server keeps the leases. Only a server that decides (server_decides()) acts on the end of a
 * lease, in work.c. Main thread only. */
#ifndef DLOCK_LEASES_H
#define DLOCK_LEASES_H

#include "lease_index.h"
#include "lock_state.h"
#include "redismodule.h"

/* Adds a lease for the lock of the given name, from now_us on. token: the holder, one of maybe
 * many; empty if the lock is exclusive. */
lease_ref leases_add(int db, RedisModuleString *name, lock_token token, int64_t lease_ms,
                     int64_t now_us);

/* Sets *end_us to the end of the lease on server_boot_us(). False: ref refers to no hold any more.
 * lease_ms is the length of the lease: after a takeover it counts from then. */
bool leases_end(lease_ref ref, int64_t lease_ms, int64_t *end_us);

/* Starts the lease again at now_us. ref must refer to a hold. */
void leases_restart(lease_ref ref, int64_t lease_ms, int64_t now_us);

/* Gives the hold a new id: work in progress for the old id has no effect any more. */
lease_ref leases_renew_id(lease_ref ref);

/* False: ref refers to no hold any more. */
bool leases_drop(lease_ref ref);

/* Where the holder of the lease is to be found. */
typedef struct lease_place {
    int db;
    RedisModuleString *name;
    size_t token_length; /* 0: the lock is exclusive */
    char token[LOCK_TOKEN_MAX];
} lease_place;

/* A copy: opening the lock can drop the lease. The caller frees the name. False: ref refers to no
 * hold any more. */
bool leases_find(lease_ref ref, lease_place *place);

/* The lease with the earliest end. False: there are no leases. */
bool leases_first(lease_ref *ref, int64_t *end_us);

/* Sets the end of the lease to end_us, when work.c looks at the lock again. ref must refer to a
 * hold. */
void leases_postpone(lease_ref ref, int64_t end_us);

/* The server begins to decide: a file was loaded, or the server was promoted. The leases of all
 * locks start again, because holders may have been promised more than the server has heard of. */
void leases_take_over(void);

/* A replica receives a whole dataset, which finally replaces the old dataset: all locks known at
 * the start of the replacement are gone. */
void leases_replacement_started(void);
void leases_replacement_ended(void);
void leases_replacement_failed(void); /* the received locks are gone instead */

/* All locks of the database (of all databases if db is negative) are gone, without an event for
 * each lock. leases_sweep() drops the entries. */
void leases_flushed(int db);
void leases_swapped(int db, int other_db);

/* Drops entries of flushed locks until no more are left or the time is over. Calls on_drop for
 * each entry. True: more entries are left. */
bool leases_sweep(int64_t until_us, void (*on_drop)(lease_ref ref));

#endif
