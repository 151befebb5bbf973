/* SPDX-License-Identifier: BSD-3-Clause */
/* server.h - everything that depends on the server and its version: clocks, the alarm, the role,
 * whether writes are allowed, and functions that only newer servers have.
 *
 * Main thread only, but for the clocks. */
#ifndef DLOCK_SERVER_H
#define DLOCK_SERVER_H

#include "redismodule.h"
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define SERVER_NEVER INT64_MAX

/* Unix time. Fences and what people see; decides nothing. */
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

/* The work that the alarm starts. ctx may write. Returns when it is due again, on
 * server_boot_us(): in the past for at once, or SERVER_NEVER. */
typedef int64_t (*server_work_fn)(RedisModuleCtx *ctx);

/* False: the cause is in the server's log. */
bool server_init(RedisModuleCtx *ctx, server_work_fn work);

/* Runs the work at that time on server_boot_us(), or earlier; 0: as soon as possible, but never
 * within this call. May be called from anywhere in the main thread. */
void server_alarm(int64_t due_us);

/* A context that is always there. Replies and replication do not work with it. */
RedisModuleCtx *server_context(void);

/* Is it this server that decides when leases end and who holds a lock? Not on a replica, nor
 * while a file is loaded, nor for a command that the master has sent. Costs a microsecond. */
bool server_decides(RedisModuleCtx *ctx);

bool server_is_cluster(void);

/* Does the running command come from the master, from a file that is being loaded, or from the
 * former owner of a slot? */
bool server_is_replaying(RedisModuleCtx *ctx);

typedef enum server_write {
    SERVER_MAY_WRITE,
    SERVER_WRITE_LATER, /* too few replicas, a full disk, a cluster that is down */
    SERVER_NOT_OURS,    /* the lock's slot is served by another node */
} server_write;

/* Would Redis let a client change this lock now? Redis does not stop a module that writes outside
 * of a command, so the module has to ask. */
server_write server_may_write(RedisModuleCtx *ctx, RedisModuleString *name);

/* Is the running DLOCK.APPLY nothing but the question of server_may_write()? */
bool server_is_probing(void);

/* True while the dataset is frozen (CLIENT PAUSE, FAILOVER): a write would abort the server. */
bool server_is_frozen(void);

/* Could this server evict a lock to save memory? As of the last server_config_changed(). */
bool server_may_evict_locks(void);

/* Looks at maxmemory and maxmemory-policy; warns in the log if they have begun to threaten
 * locks. */
void server_config_changed(RedisModuleCtx *ctx);

/* Functions that Redis 7.0 lacks; NULL where they are missing. */
typedef struct server_functions {
    int (*set_acl_categories)(RedisModuleCommand *command, const char *categories); /* 7.2 */
} server_functions;
extern server_functions server_optional;

/* Module options that only this server knows. */
int server_module_options(RedisModuleCtx *ctx);

#endif
