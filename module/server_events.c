/* SPDX-License-Identifier: BSD-3-Clause */
/* server_events.c - see server_events.h. To listen to another event: a callback and a line
 * below. */
#include "server_events.h"

#include "eviction.h"
#include "sessions.h"
#include "waiters.h"

static void on_config(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t subevent, void *data) {
    (void)event, (void)subevent, (void)data;
    eviction_warn(ctx);
}

static void on_client(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t subevent, void *data) {
    (void)ctx, (void)event;
    if (subevent == REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED)
        sessions_end_all_of(((RedisModuleClientInfo *)data)->id);
}

static void on_flush(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t subevent, void *data) {
    (void)ctx, (void)event;
    if (subevent != REDISMODULE_SUBEVENT_FLUSHDB_END) return;
    int db = ((RedisModuleFlushInfo *)data)->dbnum;
    sessions_flush(db);
    waiters_flush(db);
}

static void on_swap(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t subevent, void *data) {
    (void)ctx, (void)event, (void)subevent;
    RedisModuleSwapDbInfo *swap = data;
    sessions_swap(swap->dbnum_first, swap->dbnum_second);
    waiters_swap(swap->dbnum_first, swap->dbnum_second);
}

int server_events_subscribe(RedisModuleCtx *ctx) {
    int (*subscribe)(RedisModuleCtx *, RedisModuleEvent, RedisModuleEventCallback) =
        RedisModule_SubscribeToServerEvent;
    if (subscribe(ctx, RedisModuleEvent_Config, on_config) != REDISMODULE_OK)
        return REDISMODULE_ERR;
    if (subscribe(ctx, RedisModuleEvent_ClientChange, on_client) != REDISMODULE_OK)
        return REDISMODULE_ERR;
    if (subscribe(ctx, RedisModuleEvent_FlushDB, on_flush) != REDISMODULE_OK)
        return REDISMODULE_ERR;
    return subscribe(ctx, RedisModuleEvent_SwapDB, on_swap);
}
