/* SPDX-License-Identifier: BSD-3-Clause */
/* deferred.c - see deferred.h.
 *
 * A timer that is created while the server is about to sleep may be overslept until the next cron
 * (seen on 7.0), hence the one-shot event, which does nothing but end the sleep.
 *
 * Invariant: while the list is not empty, a timer is set. */
#include "deferred.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

/* 7.0 counts the microseconds to the next timer in an int: one that is more than 35 minutes away
 * makes it spin. */
enum { RETRY_MS = 10, TIMER_MAX_MS = 30 * 60 * 1000 };

typedef struct item {
    struct item *next;
    int db;
    int64_t fence;
    RedisModuleString *name;
} item;

static RedisModuleCtx *context;
static deferred_fn settle_fn;
static item *first, **last = &first;
static bool is_timer_set;

static void on_timer(RedisModuleCtx *ctx, void *data);

static void set_timer(int64_t after_ms) {
    if (is_timer_set) return;
    is_timer_set = true;
    deferred_set_timer(after_ms, on_timer, NULL);
}

static void do_nothing(void *data) {
    (void)data;
}

static void append(int db, const RedisModuleString *name, int64_t fence) {
    item *added = RedisModule_Alloc(sizeof(*added));
    *added = (item){.db = db, .fence = fence};
    added->name = RedisModule_CreateStringFromString(NULL, name);
    *last = added;
    last = &added->next;
}

static void free_item(item *old) {
    RedisModule_FreeString(NULL, old->name);
    RedisModule_Free(old);
}

static bool is_replica(RedisModuleCtx *ctx) {
    return (RedisModule_GetContextFlags(ctx) & REDISMODULE_CTX_FLAGS_SLAVE) != 0;
}

/* Too few replicas, or a full disk: the core does not stop us, so we ask it by a write that never
 * changes anything, with the rules for scripts (S). It looks at these before it looks at the key.
 * Without E, for errors as replies, Valkey 9.1 crashes when it refuses. */
static bool are_writes_refused(RedisModuleCtx *ctx) {
    errno = 0;
    RedisModuleCallReply *reply = RedisModule_Call(ctx, "PEXPIREAT", "SEccc", "", "1", "GT");
    bool is_refused = errno == ESPIPE;
    if (reply != NULL) RedisModule_FreeCallReply(reply);
    return is_refused;
}

/* Paused clients mean a frozen dataset: the server aborts on a write then. Where clients may not
 * write, a lock must not change hands either: its next holder may be on the other side of a
 * partition. */
static bool must_wait(RedisModuleCtx *ctx) {
    if (RedisModule_AvoidReplicaTraffic()) return true;
    return !is_replica(ctx) && are_writes_refused(ctx);
}

static void settle(RedisModuleCtx *ctx, int db, RedisModuleString *name, int64_t fence) {
    if (is_replica(ctx)) return;
    RedisModule_SelectDb(ctx, db);
    settle_fn(ctx, name, fence);
}

static void on_timer(RedisModuleCtx *ctx, void *data) {
    (void)data;
    is_timer_set = false;
    if (must_wait(ctx)) {
        set_timer(RETRY_MS);
        return;
    }
    item *todo = first;
    first = NULL;
    last = &first;
    while (todo != NULL) {
        item *next = todo->next;
        settle(ctx, todo->db, todo->name, todo->fence);
        free_item(todo);
        todo = next;
    }
}

int deferred_register(RedisModuleCtx *ctx, deferred_fn fn) {
    settle_fn = fn;
    context = RedisModule_GetDetachedThreadSafeContext(ctx);
    return context == NULL ? REDISMODULE_ERR : REDISMODULE_OK;
}

void deferred_settle_soon(int db, const RedisModuleString *name, int64_t fence) {
    append(db, name, fence);
    set_timer(0);
    deferred_end_sleep();
}

void deferred_settle_now(RedisModuleCtx *ctx, int db, RedisModuleString *name) {
    if (must_wait(ctx)) {
        append(db, name, 0);
        set_timer(RETRY_MS);
        return;
    }
    settle(ctx, db, name, 0);
}

void deferred_cancel(int64_t fence) {
    for (item *each = first; each != NULL; each = each->next)
        if (each->fence == fence) each->fence = 0;
}

void deferred_end_sleep(void) {
    RedisModule_EventLoopAddOneShot(do_nothing, NULL);
}

RedisModuleCtx *deferred_context(void) {
    return context;
}

RedisModuleTimerID deferred_set_timer(int64_t after_ms, RedisModuleTimerProc callback, void *data) {
    int64_t period_ms = after_ms < 0 ? 0 : after_ms > TIMER_MAX_MS ? TIMER_MAX_MS : after_ms;
    return RedisModule_CreateTimer(context, period_ms, callback, data);
}

void deferred_stop_timer(RedisModuleTimerID timer) {
    RedisModule_StopTimer(context, timer, NULL);
}
