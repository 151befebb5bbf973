/* SPDX-License-Identifier: BSD-3-Clause */
/* session_commands.c - see session_commands.h.
 *
 * DLOCK.SESSION is the heartbeat of a session and the way to its mailbox. The call returns at once
 * if the session is new, has events, or goes on over another connection, so that its client soon
 * knows; else the call is parked (mailbox.h). */
#include "session_commands.h"

#include "args.h"
#include "caller.h"
#include "mailbox.h"
#include "server.h"
#include "sessions.h"
#include "settings.h"
#include "stats.h"
#include "watches.h"

/* Sessions live where locks are decided about. A script has no connection. */
static bool may_have_session_or_reply(RedisModuleCtx *ctx) {
    const char *error = NULL;
    if (!server_decides(ctx))
        error = "READONLY sessions live on the master, and this server is a replica";
    else if (!caller_has_connection(ctx))
        error = "ERR DLOCK.SESSION needs a connection: a script has none";
    if (error != NULL) RedisModule_ReplyWithError(ctx, error);
    return error == NULL;
}

/* The command has no flag deny-oom, because heartbeats must go on when memory is short. */
static session *make_or_reply(RedisModuleCtx *ctx, const session_request *request,
                              RedisModuleString *user) {
    const char *error = NULL;
    if (sessions_count.sessions >= settings.max_sessions)
        error = "ERR too many sessions (dlock.max-sessions)";
    else if (RedisModule_GetContextFlags(ctx) & REDISMODULE_CTX_FLAGS_OOM)
        error = "OOM no new sessions when used memory > 'maxmemory'";
    if (error != NULL) {
        RedisModule_ReplyWithError(ctx, error);
        return NULL;
    }
    session *made = sessions_make(request->id, request->id_length, request->timeout_ms, user);
    RedisModuleString *in_acl = server_user(ctx);
    made->is_user_in_acl = in_acl != NULL;
    if (in_acl != NULL) RedisModule_FreeString(ctx, in_acl);
    return made;
}

/* The timeout of a session never changes: it is the lease of the holds that replicas know of. */
static session *find_or_make_or_reply(RedisModuleCtx *ctx, const session_request *request,
                                      bool *is_new) {
    session *found = sessions_find(request->id, request->id_length);
    RedisModuleString *user = RedisModule_GetCurrentUserName(ctx);
    const char *error = NULL;
    *is_new = found == NULL;
    if (found == NULL)
        found = make_or_reply(ctx, request, user);
    else if (RedisModule_StringCompare(user, found->user) != 0)
        error = "NOPERM this session belongs to another user";
    else if (request->timeout_ms != found->timeout_ms)
        error = "ERR PX differs from the timeout with which the session was opened";
    RedisModule_FreeString(ctx, user);
    if (error == NULL) return found;
    RedisModule_ReplyWithError(ctx, error);
    return NULL;
}

static int end_session(RedisModuleCtx *ctx, const session_request *request, RedisModuleString *id) {
    if (sessions_find(request->id, request->id_length) == NULL)
        return RedisModule_ReplyWithLongLong(ctx, 0);
    session *ended = args_find_session_or_reply(ctx, id);
    if (ended == NULL) return REDISMODULE_OK;
    sessions_end(ended);
    return RedisModule_ReplyWithLongLong(ctx, 1);
}

/* DLOCK.SESSION session PX timeout-ms [ACK n], or DLOCK.SESSION session END */
int cmd_session(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    session_request request;
    bool is_new;
    if (argc < 2) return RedisModule_WrongArity(ctx); /* a file is loaded without this check */
    if (!args_parse_session_or_reply(ctx, argv + 1, argc - 1, &request)) return REDISMODULE_OK;
    if (!may_have_session_or_reply(ctx)) return REDISMODULE_OK;
    if (request.is_end) return end_session(ctx, &request, argv[1]);
    session *heard = find_or_make_or_reply(ctx, &request, &is_new);
    if (heard == NULL) return REDISMODULE_OK;

    int64_t now_us = server_boot_us();
    uint64_t client = RedisModule_GetClientId(ctx);
    bool is_at_once = is_new || client != heard->client;
    mailbox_supersede(heard);
    sessions_hear(heard, client, now_us);
    mailbox_acknowledge(heard, request.acknowledged);
    bool may_park = !is_at_once && list_is_empty(&heard->mailbox) && caller_may_block(ctx);
    if (!may_park || !mailbox_park(ctx, heard, now_us)) mailbox_write(ctx, heard, now_us);
    return REDISMODULE_OK;
}

/* A watch that the session has already costs no further memory. */
static bool has_room_or_reply(RedisModuleCtx *ctx, const session *owner, RedisModuleString *name) {
    if (watches_count() < settings.max_watches) return true;
    if (watches_has(owner, RedisModule_GetSelectedDb(ctx), name)) return true;
    stats_count(STATS_QUEUE_FULL);
    RedisModule_ReplyWithError(ctx, "QUEUEFULL too many watches (dlock.max-watches)");
    return false;
}

/* DLOCK.WATCH key session */
int cmd_watch(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 3) return RedisModule_WrongArity(ctx);
    if (!args_check_session_id_or_reply(ctx, argv[2])) return REDISMODULE_OK;
    session *owner = args_find_session_or_reply(ctx, argv[2]);
    if (owner == NULL || !has_room_or_reply(ctx, owner, argv[1])) return REDISMODULE_OK;
    watches_add(owner, RedisModule_GetSelectedDb(ctx), argv[1]);
    return RedisModule_ReplyWithSimpleString(ctx, "OK");
}

/* DLOCK.UNWATCH key session */
int cmd_unwatch(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 3) return RedisModule_WrongArity(ctx);
    if (!args_check_session_id_or_reply(ctx, argv[2])) return REDISMODULE_OK;
    session *owner = args_find_session_or_reply(ctx, argv[2]);
    if (owner == NULL) return REDISMODULE_OK;
    watches_remove(owner, RedisModule_GetSelectedDb(ctx), argv[1]);
    return RedisModule_ReplyWithSimpleString(ctx, "OK");
}
