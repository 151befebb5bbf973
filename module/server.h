/* SPDX-License-Identifier: BSD-3-Clause */
/* server.h - everything that depends on the server and its version: clocks, the alarm, the role,
 * the permission to write, and functions of newer servers.
 *
 * Main thread only, except for the clocks. */
#ifndef DLOCK_SERVER_H
#define DLOCK_SERVER_H

#include "redismodule.h"
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define SERVER_NEVER INT64_MAX

/* Unix time, for fences and for display; decides nothing. */
static inline int64_t server_wall_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* The clock of leases and waits: nobody can set it, and it goes on while the machine sleeps. */
static inline int64_t server_boot_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* The work started by the alarm. ctx may write. Returns when the work is due again, on
 * server_boot_us(): a time in the past for at once, or SERVER_NEVER. */
typedef int64_t (*server_work_fn)(RedisModuleCtx *ctx);

/* False: the reason is in the server's log. */
bool server_init(RedisModuleCtx *ctx, server_work_fn work);

/* Runs the work at due_us on server_boot_us(), or earlier; 0: as soon as possible, but never
 * within the call. May be called from anywhere in the main thread. */
void server_alarm(int64_t due_us);

/* A permanent context. Replies and replication do not work with it. */
RedisModuleCtx *server_context(void);

/* Does this server decide when leases end and which token holds a lock? Not on a replica, nor
 * while a file is loaded, nor for a command from the master. Costs a microsecond. */
bool server_decides(RedisModuleCtx *ctx);

bool server_is_cluster(void);

/* Does the running command come from the master, from a file being loaded, or from the former
 * owner of a slot? */
bool server_is_replaying(RedisModuleCtx *ctx);

/* Does the running command come from the owner of a slot that is migrating to this server? */
bool server_is_importing(RedisModuleCtx *ctx);

typedef enum server_write {
    SERVER_MAY_WRITE,
    SERVER_WRITE_LATER, /* too few replicas, a full disk, the cluster is down */
    SERVER_NOT_OURS,    /* another node serves the lock's slot */
} server_write;

/* Would Redis let a client change the lock now? Redis does not stop a module from writing
 * outside of a command, so the module has to ask. */
server_write server_may_write(RedisModuleCtx *ctx, RedisModuleString *name);

/* Is the slot of the lock here? True outside of a cluster and on a replica; false while the cluster
 * is down. Asked without the calling client, which ASKING lets in before. */
bool server_has_slot(int db, RedisModuleString *name);

/* The same for several locks, which are all changed in one step. */
server_write server_may_write_all(RedisModuleCtx *ctx, RedisModuleString **names, int count);

/* May a command of the calling client change all these keys of one hash slot at this node? Not
 * while the slot moves, and some of the keys are not here. */
bool server_are_here(RedisModuleCtx *ctx, RedisModuleString **keys, int count);

/* Are the keys in one hash slot? */
bool server_share_slot(RedisModuleString **names, int count);

/* The ACL user of the calling client, which the caller frees; NULL if there is no such user. */
RedisModuleString *server_user(RedisModuleCtx *ctx);

/* The user for whom the running command is run, also by a script; the caller frees the name. NULL:
 * another module runs the command for itself. */
RedisModuleString *server_caller(RedisModuleCtx *ctx);

/* May the user still send DLOCK.ACQUIRE, or DLOCK.WATCH, for the lock, or DLOCK.ACQUIREALL for all
 * of them? An operator may have changed its rules. */
bool server_user_may_acquire(RedisModuleString *user, RedisModuleString *name);
bool server_user_may_acquire_all(RedisModuleString *user, RedisModuleString **names, int count);
bool server_user_may_watch(RedisModuleString *user, RedisModuleString *name);

/* Is the running DLOCK.APPLY only the probe of server_may_write()? */
bool server_is_probing(void);

/* True while the dataset is frozen (CLIENT PAUSE, FAILOVER): a write would abort the server. */
bool server_is_frozen(void);

/* Could the server evict a lock to save memory? As of the last server_config_changed(). */
bool server_may_evict_locks(void);

/* How many clients may wait at a time, for all locks together: three quarters of maxclients. The
 * rest of the connections is left for holders that come to release, and for everybody else. As of
 * the last server_config_changed(). */
int64_t server_max_parked(void);

/* Reads maxmemory, maxmemory-policy and maxclients. Logs a warning when locks become evictable. */
void server_config_changed(RedisModuleCtx *ctx);

/* Functions missing in Redis 7.0.0; NULL on a server without the function. */
typedef struct server_functions {
    int (*set_acl_categories)(RedisModuleCommand *command, const char *categories); /* 7.2 */
    RedisModuleString *(*client_name)(RedisModuleCtx *ctx, uint64_t id);            /* 7.0.3 */
} server_functions;
extern server_functions server_optional;

/* Module options for the version of the running server. */
int server_module_options(RedisModuleCtx *ctx);

#endif
