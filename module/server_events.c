/* SPDX-License-Identifier: BSD-3-Clause */
/* server_events.c - see server_events.h.
 *
 *   configuration       may make room for waiters, and may let the server evict locks
 *   client              a connection has ended: its sessions, and grants it was not told of
 *   flush, swap         locks are gone, or in another database
 *   loading, role       the server begins to decide
 *   module              other commands than before
 *   fork, replica       a file or a replica begins without the clock of fences
 *
 * To handle another event: a callback and a row in the table. */
#include "server_events.h"

#include "blocked.h"
#include "fences.h"
#include "guard_rules.h"
#include "leases.h"
#include "losses.h"
#include "queues.h"
#include "server.h"
#include "sessions.h"
#include "settings.h"
#include "watches.h"

static int on_evicted(RedisModuleCtx *ctx, int type, const char *event, RedisModuleString *key) {
    (void)type, (void)event;
    losses_evicted(RedisModule_GetSelectedDb(ctx), key);
    return REDISMODULE_OK;
}

/* A subscription makes every write of every client a little slower, and can never be undone. So
 * the module subscribes once locks can be evicted. */
static void follow_configuration(RedisModuleCtx *ctx) {
    static bool is_subscribed;
    server_config_changed(ctx);
    if (!server_may_evict_locks() || is_subscribed) return;
    is_subscribed = RedisModule_SubscribeToKeyspaceEvents(ctx, REDISMODULE_NOTIFY_EVICTED,
                                                          on_evicted) == REDISMODULE_OK;
}

/* A higher dlock.max-holders makes room for clients that wait. */
static void on_config(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t subevent, void *data) {
    (void)event, (void)subevent, (void)data;
    static long long max_holders;
    follow_configuration(ctx);
    if (settings.max_holders > max_holders) queues_check_all();
    max_holders = settings.max_holders;
}

static void on_client(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t subevent, void *data) {
    (void)event;
    if (subevent != REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED) return;
    uint64_t client = ((RedisModuleClientInfo *)data)->id;
    blocked_client_gone(ctx, client);
    sessions_client_gone(client);
}

static void on_flush(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t subevent, void *data) {
    (void)ctx, (void)event;
    if (subevent != REDISMODULE_SUBEVENT_FLUSHDB_END) return;
    leases_flushed(((RedisModuleFlushInfo *)data)->dbnum);
    queues_check_all();
    watches_mark_all();
}

/* The locks of two databases have changed places; the waiters have not. */
static void on_swap(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t subevent, void *data) {
    (void)ctx, (void)event, (void)subevent;
    RedisModuleSwapDbInfo *swap = data;
    leases_swapped(swap->dbnum_first, swap->dbnum_second);
    queues_check_all();
    watches_mark_all();
}

/* From now on the server decides which token holds a lock. */
static void begin_to_decide(bool is_promoted) {
    leases_take_over();
    fences_take_over(is_promoted);
    queues_check_all();
    server_alarm(0);
}

static void on_loading(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t subevent, void *data) {
    (void)event, (void)data;
    bool is_ended = subevent == REDISMODULE_SUBEVENT_LOADING_ENDED;
    if (!is_ended && subevent != REDISMODULE_SUBEVENT_LOADING_FAILED) {
        leases_load_started(subevent == REDISMODULE_SUBEVENT_LOADING_REPL_START);
        return;
    }
    leases_load_ended(is_ended);
    bool is_master = RedisModule_GetContextFlags(ctx) & REDISMODULE_CTX_FLAGS_MASTER;
    if (is_master) begin_to_decide(false);
}

static void on_role(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t subevent, void *data) {
    (void)ctx, (void)event, (void)data;
    if (subevent == REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER) begin_to_decide(true);
    /* All sessions end: a connection that outlives a failover and the failover back must not end a
     * lock that its holder has meanwhile taken again elsewhere. */
    if (subevent == REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA) sessions_forget_all();
}

static void on_module(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t subevent, void *data) {
    (void)ctx, (void)event, (void)subevent, (void)data;
    guard_rules_forget();
}

static void on_fork(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t subevent, void *data) {
    (void)ctx, (void)event, (void)data;
    if (subevent == REDISMODULE_SUBEVENT_FORK_CHILD_BORN) fences_tell_soon();
}

static void on_replica(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t subevent, void *data) {
    (void)ctx, (void)event, (void)data;
    if (subevent == REDISMODULE_SUBEVENT_REPLICA_CHANGE_ONLINE) fences_tell_soon();
}

static int ignore(RedisModuleCtx *ctx, int type, const char *event, RedisModuleString *key) {
    (void)ctx, (void)type, (void)event, (void)key;
    return REDISMODULE_OK;
}

/* Redis 8.4 and newer free the keys of a migrated slot in another thread, without notice, unless
 * a module subscribes to the event for each key. With a subscriber, Redis unlinks each key as DEL
 * does. */
static void ask_to_unlink_trimmed_keys(RedisModuleCtx *ctx) {
    enum { NOTIFY_KEY_TRIMMED = 1 << 17 };
    if (RedisModule_GetKeyspaceNotificationFlagsAll() & NOTIFY_KEY_TRIMMED)
        RedisModule_SubscribeToKeyspaceEvents(ctx, NOTIFY_KEY_TRIMMED, ignore);
}

int server_events_subscribe(RedisModuleCtx *ctx) {
    const struct {
        RedisModuleEvent event;
        RedisModuleEventCallback callback;
    } table[] = {
        {RedisModuleEvent_Config, on_config},
        {RedisModuleEvent_ClientChange, on_client},
        {RedisModuleEvent_FlushDB, on_flush},
        {RedisModuleEvent_SwapDB, on_swap},
        {RedisModuleEvent_Loading, on_loading},
        {RedisModuleEvent_ReplicationRoleChanged, on_role},
        {RedisModuleEvent_ModuleChange, on_module},
        {RedisModuleEvent_ForkChild, on_fork},
        {RedisModuleEvent_ReplicaChange, on_replica},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (RedisModule_SubscribeToServerEvent(ctx, table[i].event, table[i].callback) !=
            REDISMODULE_OK)
            return REDISMODULE_ERR;
    ask_to_unlink_trimmed_keys(ctx);
    follow_configuration(ctx);
    return REDISMODULE_OK;
}
