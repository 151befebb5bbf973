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

/* The name of a lock with shared holders: a name can have megabytes, and a lock many holders. */
typedef struct lease_name lease_name;

/* Adds a lease for the lock of the given name, from now_us on. token: the holder, one of maybe
 * many; empty if the lock is exclusive. is_loaded: the lock is part of the dataset that is being
 * loaded, if there is one; else it is in the keyspace. *shared: NULL, or from another call for the
 * same lock, whose copy of the name is used; set only for a token. The caller releases it. */
lease_ref leases_add(int db, RedisModuleString *name, lock_token token, int64_t lease_ms,
                     int64_t now_us, bool is_loaded, lease_name **shared);
void leases_release_name(lease_name *shared);

/* Finds the end of the lease, on server_boot_us(), and the tie of the hold (see ties.h). False:
 * ref refers to no hold any more. lease_ms is the length of the lease: after a takeover it counts
 * from then. */
bool leases_find_end(lease_ref ref, int64_t lease_ms, int64_t *end_us, void **tie);

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

/* Sets the end of the lease to end_us, when work.c looks at the lock again; SERVER_NEVER: the lease
 * does not end by itself. ref must refer to a hold. */
void leases_set_end(lease_ref ref, int64_t end_us);

/* The place where ties.c keeps the tie of the hold. NULL: ref refers to no hold any more. */
void **leases_tie(lease_ref ref);

/* The server begins to decide: a file was loaded, or the server was promoted. The leases of all
 * locks start again, because holders may have been promised more than the server has heard of. */
void leases_take_over(void);

/* A file is loaded, or a replica receives a whole dataset. In the end a received dataset replaces
 * the old one, whose locks are all gone then. If it fails, the received locks are gone instead. In
 * between, the leases of both are kept: clients may read the old dataset. */
void leases_load_started(bool is_replacement);
void leases_load_ended(bool is_complete);
bool leases_are_loading(void);

/* All locks of the database (of all databases if db is negative) are gone, without an event for
 * each lock. leases_sweep() drops the entries. */
void leases_flushed(int db);
void leases_swapped(int db, int other_db);

/* Drops entries of flushed locks until no more are left or the time is over. Calls on_drop for
 * each entry. True: more entries are left. */
bool leases_sweep(int64_t until_us, void (*on_drop)(lease_ref ref));

#endif
