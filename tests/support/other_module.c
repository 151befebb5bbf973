/* SPDX-License-Identifier: BSD-3-Clause */
/* other_module.c - a module with commands that
 *
 *   other.block                      blocks its client, whoever calls it
 *   other.echo                       does not
 *   other.call command [arg ...]     calls another command
 *   other.promise command [arg ...]  calls it and lets it block: 1 if it did, and 0 if not
 *   other.meddle key                 deletes the key within the next event of another lock */
#include "redismodule.h"
#include <stdbool.h>
#include <string.h>

static int on_reply(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    return RedisModule_ReplyWithSimpleString(ctx, "DONE");
}

static void on_timer(RedisModuleCtx *ctx, void *blocked) {
    (void)ctx;
    RedisModule_UnblockClient(blocked, NULL);
}

static int cmd_block(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    RedisModuleBlockedClient *blocked =
        RedisModule_BlockClient(ctx, on_reply, on_reply, NULL, 1000);
    RedisModule_CreateTimer(ctx, 10, on_timer, blocked);
    return REDISMODULE_OK;
}

static int cmd_echo(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    return RedisModule_ReplyWithSimpleString(ctx, "HERE");
}

static int cmd_call(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    const char *name = RedisModule_StringPtrLen(argv[1], NULL);
    RedisModuleCallReply *reply = RedisModule_Call(ctx, name, "Ev", argv + 2, (size_t)argc - 2);
    RedisModule_ReplyWithCallReply(ctx, reply);
    RedisModule_FreeCallReply(reply);
    return REDISMODULE_OK;
}

static RedisModuleString *meddled; /* NULL: nothing to do */

static int on_event(RedisModuleCtx *ctx, int type, const char *event, RedisModuleString *key) {
    (void)type;
    if (meddled == NULL || strncmp(event, "dlock.", 6) != 0 ||
        RedisModule_StringCompare(key, meddled) == 0)
        return REDISMODULE_OK;
    RedisModuleString *target = meddled;
    meddled = NULL;
    RedisModuleCallReply *reply = RedisModule_Call(ctx, "DEL", "!s", target);
    if (reply != NULL) RedisModule_FreeCallReply(reply);
    RedisModule_FreeString(NULL, target);
    return REDISMODULE_OK;
}

static int cmd_meddle(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argc;
    if (meddled != NULL) RedisModule_FreeString(NULL, meddled);
    meddled = RedisModule_HoldString(NULL, argv[1]);
    return RedisModule_ReplyWithSimpleString(ctx, "OK");
}

enum { REPLY_PROMISE = 12 };

static int cmd_promise(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    const char *name = RedisModule_StringPtrLen(argv[1], NULL);
    RedisModuleCallReply *promise = RedisModule_Call(ctx, name, "KEv", argv + 2, (size_t)argc - 2);
    bool has_blocked = promise != NULL && RedisModule_CallReplyType(promise) == REPLY_PROMISE;
    if (promise != NULL) RedisModule_FreeCallReply(promise);
    return RedisModule_ReplyWithLongLong(ctx, has_blocked);
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    const struct {
        const char *name;
        RedisModuleCmdFunc handler;
        const char *flags;
    } table[] = {
        {"other.block", cmd_block, "write"},      {"other.echo", cmd_echo, "readonly"},
        {"other.call", cmd_call, "write"},        {"other.promise", cmd_promise, "write"},
        {"other.meddle", cmd_meddle, "readonly"},
    };
    if (RedisModule_Init(ctx, "other", 1, REDISMODULE_APIVER_1) != REDISMODULE_OK)
        return REDISMODULE_ERR;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (RedisModule_CreateCommand(ctx, table[i].name, table[i].handler, table[i].flags, 0, 0,
                                      0) != REDISMODULE_OK)
            return REDISMODULE_ERR;
    return RedisModule_SubscribeToKeyspaceEvents(ctx, REDISMODULE_NOTIFY_MODULE, on_event);
}
