/* SPDX-License-Identifier: BSD-3-Clause */
/* commands.c - the commands: five handlers and one table.
 *
 * A handler parses, opens, lets transition.c judge and apply, closes, replies. Nothing is touched
 * before everything is parsed, and exactly one reply is sent on every way out.
 *
 * To add a command: a handler, its arguments, and a row in the table; COMMAND DOCS follows from
 * it. */
#include "commands.h"

#include "args.h"
#include "eviction.h"
#include "optional_api.h"
#include "replicate.h"
#include "sessions.h"
#include "settings.h"
#include "transition.h"
#include "waiters.h"
#include "wall_clock.h"

/* The key is the word behind the command's name. */
static bool open_or_reply(lock_entry *entry, RedisModuleCtx *ctx, RedisModuleString **argv,
                          lock_access access) {
    if (!lock_store_open(entry, ctx, argv[1], access)) {
        RedisModule_ReplyWithError(ctx, REDISMODULE_ERRORMSG_WRONGTYPE);
        return false;
    }
    entry->argv = argv;
    return true;
}

/* In a script or a transaction nobody waits: the answer comes at once. */
static bool may_block(RedisModuleCtx *ctx) {
    int no = REDISMODULE_CTX_FLAGS_DENY_BLOCKING | REDISMODULE_CTX_FLAGS_MULTI |
             REDISMODULE_CTX_FLAGS_LUA;
    return (RedisModule_GetContextFlags(ctx) & no) == 0;
}

/* A script, or another module, runs commands under a client of its own, which never disconnects. */
static bool has_connection(RedisModuleCtx *ctx) {
    int flags = RedisModule_GetContextFlags(ctx);
    if (flags & REDISMODULE_CTX_FLAGS_LUA) return false;
    if ((flags & REDISMODULE_CTX_FLAGS_DENY_BLOCKING) && !(flags & REDISMODULE_CTX_FLAGS_MULTI))
        return false;
    return RedisModule_GetClientInfoById(NULL, RedisModule_GetClientId(ctx)) == REDISMODULE_OK;
}

/* What this server is asked to refuse, however right the words are. */
static bool is_allowed_or_reply(RedisModuleCtx *ctx, const lock_request *request) {
    const char *error = NULL;
    if (settings.require_noeviction && eviction_threatens_locks())
        error = "ERR maxmemory-policy can evict locks, and dlock.require-noeviction is yes";
    else if (request->is_session && !has_connection(ctx))
        error = "ERR SESSION needs a connection, and a script has none";
    if (error != NULL) RedisModule_ReplyWithError(ctx, error);
    return error == NULL;
}

/* DLOCK.ACQUIRE key token PX lease-ms [WAIT wait-ms] [SESSION] [FENCE fence] */
static int cmd_acquire(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    lock_request request;
    lock_entry entry;
    if (!args_parse_acquire_or_reply(ctx, argv + 2, argc - 2, &request)) return REDISMODULE_OK;
    if (!is_allowed_or_reply(ctx, &request)) return REDISMODULE_OK;
    if (!open_or_reply(&entry, ctx, argv, LOCK_WRITE)) return REDISMODULE_OK;
    int64_t fence = transition_acquire(&entry, &request);
    if (fence > 0)
        RedisModule_ReplyWithLongLong(ctx, fence);
    else if (request.wait_ms > 0 && may_block(ctx))
        transition_wait_or_reply(&entry, &request);
    else
        RedisModule_ReplyWithNull(ctx);
    lock_store_close(&entry);
    return REDISMODULE_OK;
}

/* DLOCK.RELEASE key token */
static int cmd_release(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argc;
    lock_token token;
    lock_entry entry;
    if (!args_parse_token_or_reply(ctx, argv[2], &token)) return REDISMODULE_OK;
    if (!open_or_reply(&entry, ctx, argv, LOCK_WRITE)) return REDISMODULE_OK;
    bool was_held = transition_release(&entry, token);
    lock_store_close(&entry);
    return RedisModule_ReplyWithLongLong(ctx, was_held);
}

/* DLOCK.EXTEND key token PX lease-ms */
static int cmd_extend(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    lock_request request;
    lock_entry entry;
    if (!args_parse_extend_or_reply(ctx, argv + 2, argc - 2, &request)) return REDISMODULE_OK;
    if (!open_or_reply(&entry, ctx, argv, LOCK_WRITE)) return REDISMODULE_OK;
    bool is_held = transition_extend(&entry, &request);
    lock_store_close(&entry);
    return RedisModule_ReplyWithLongLong(ctx, is_held);
}

static void reply_number(RedisModuleCtx *ctx, const char *field, int64_t value) {
    RedisModule_ReplyWithSimpleString(ctx, field);
    RedisModule_ReplyWithLongLong(ctx, value);
}

static void reply_state(RedisModuleCtx *ctx, const lock_entry *entry) {
    const lock_state *state = &entry->held;
    int64_t ttl_ms = -1;
    if (state->expires_ms != LOCK_NO_EXPIRY) {
        ttl_ms = state->expires_ms - wall_clock_ms();
        if (ttl_ms < 0) ttl_ms = 0;
    }
    RedisModule_ReplyWithMap(ctx, 8);
    RedisModule_ReplyWithSimpleString(ctx, "token");
    RedisModule_ReplyWithStringBuffer(ctx, state->token.bytes, state->token.length);
    reply_number(ctx, "fence", state->fence);
    reply_number(ctx, "ttl", ttl_ms);
    reply_number(ctx, "lease", state->lease_ms);
    reply_number(ctx, "since", state->since_ms);
    reply_number(ctx, "waiters", waiters_count(entry->db, entry->name));
    reply_number(ctx, "session", (int64_t)sessions_client(state->fence));
    RedisModule_ReplyWithSimpleString(ctx, "kind");
    RedisModule_ReplyWithSimpleString(ctx, state->kind == LOCK_KIND_LOCK ? "lock" : "string");
}

/* DLOCK.INFO key */
static int cmd_info(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argc;
    lock_entry entry;
    if (!open_or_reply(&entry, ctx, argv, LOCK_READ)) return REDISMODULE_OK;
    lock_store_read_expiry(&entry);
    if (entry.is_held)
        reply_state(ctx, &entry);
    else
        RedisModule_ReplyWithNull(ctx);
    lock_store_close(&entry);
    return REDISMODULE_OK;
}

/* DLOCK.APPLY key state [ignored ...]: what replicate.c writes, on its way back in */
static int cmd_apply(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argc;
    lock_state state;
    lock_entry entry;
    if (!args_parse_state_or_reply(ctx, argv[2], &state)) return REDISMODULE_OK;
    if (!open_or_reply(&entry, ctx, argv, LOCK_OVERWRITE)) return REDISMODULE_OK;
    transition_apply(&entry, &state);
    lock_store_close(&entry);
    return RedisModule_ReplyWithSimpleString(ctx, "OK");
}

#define ARG_KEY                                                                                    \
    { .name = "key", .type = REDISMODULE_ARG_TYPE_KEY, .key_spec_index = 0 }
#define ARG_TOKEN                                                                                  \
    { .name = "token", .type = REDISMODULE_ARG_TYPE_STRING, .key_spec_index = -1 }
#define ARG_LEASE                                                                                  \
    {                                                                                              \
        .name = "lease-ms", .type = REDISMODULE_ARG_TYPE_INTEGER, .key_spec_index = -1,            \
        .token = "PX"                                                                              \
    }
#define ARG_END                                                                                    \
    { 0 }

static RedisModuleCommandArg acquire_args[] = {
    ARG_KEY,
    ARG_TOKEN,
    ARG_LEASE,
    {.name = "wait-ms",
     .type = REDISMODULE_ARG_TYPE_INTEGER,
     .key_spec_index = -1,
     .token = "WAIT",
     .flags = REDISMODULE_CMD_ARG_OPTIONAL},
    {.name = "session",
     .type = REDISMODULE_ARG_TYPE_PURE_TOKEN,
     .key_spec_index = -1,
     .token = "SESSION",
     .flags = REDISMODULE_CMD_ARG_OPTIONAL},
    {.name = "fence",
     .type = REDISMODULE_ARG_TYPE_INTEGER,
     .key_spec_index = -1,
     .token = "FENCE",
     .flags = REDISMODULE_CMD_ARG_OPTIONAL},
    ARG_END,
};
static RedisModuleCommandArg extend_args[] = {ARG_KEY, ARG_TOKEN, ARG_LEASE, ARG_END};
static RedisModuleCommandArg token_args[] = {ARG_KEY, ARG_TOKEN, ARG_END};
static RedisModuleCommandArg key_args[] = {ARG_KEY, ARG_END};
static RedisModuleCommandArg apply_args[] = {
    ARG_KEY,
    {.name = "state", .type = REDISMODULE_ARG_TYPE_STRING, .key_spec_index = -1},
    {.name = "ignored",
     .type = REDISMODULE_ARG_TYPE_STRING,
     .key_spec_index = -1,
     .flags = REDISMODULE_CMD_ARG_OPTIONAL | REDISMODULE_CMD_ARG_MULTIPLE},
    ARG_END,
};

typedef struct command {
    const char *name;
    RedisModuleCmdFunc handler;
    const char *flags;
    const char *acl_categories; /* from 7.2 on; before, a module's commands are in none */
    int arity;
    uint64_t key_flags;
    const char *summary;
    RedisModuleCommandArg *args;
} command;

/* The arity of ACQUIRE and EXTEND counts neither PX nor its value, so that our error can name
 * them. */
static const command table[] = {
    {"dlock.acquire", cmd_acquire, "write deny-oom blocking fast", "write fast blocking", -3,
     REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_UPDATE,
     "Takes a lock, or waits for it. Replies with the fence, an integer above 0, when token holds "
     "the "
     "lock now, or with null when another does, at once or when the wait is over.",
     acquire_args},
    {"dlock.release", cmd_release, "write fast", "write fast", 3,
     REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_DELETE,
     "Gives a lock back. Replies with 1 when token held it and it is free now, or with 0 when "
     "token "
     "did not hold it, and nothing has changed.",
     token_args},
    {"dlock.extend", cmd_extend, "write fast", "write fast", -3,
     REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_UPDATE,
     "Lets a held lock end lease-ms from now. Replies with 1 when token holds it, or with 0 when "
     "it "
     "does not, and nothing has changed.",
     extend_args},
    {"dlock.info", cmd_info, "readonly fast", "read fast", 2,
     REDISMODULE_CMD_KEY_RO | REDISMODULE_CMD_KEY_ACCESS,
     "Tells who holds a lock, since when and for how long. Replies with a map of token, fence, "
     "ttl, "
     "lease, since, waiters, session and kind, or with null when it is free.",
     key_args},
    {REPLICATE_COMMAND, cmd_apply, "write admin fast", "write fast admin dangerous", -3,
     REDISMODULE_CMD_KEY_OW | REDISMODULE_CMD_KEY_UPDATE,
     "Internal: sets a lock's state as the master or the append-only file says. Replies with OK.",
     apply_args},
};

static int register_row(RedisModuleCtx *ctx, const command *row) {
    if (RedisModule_CreateCommand(ctx, row->name, row->handler, row->flags, 1, 1, 1) !=
        REDISMODULE_OK)
        return REDISMODULE_ERR;

    RedisModuleCommandKeySpec key_specs[] = {
        {
            .flags = row->key_flags,
            .begin_search_type = REDISMODULE_KSPEC_BS_INDEX,
            .bs.index = {.pos = 1},
            .find_keys_type = REDISMODULE_KSPEC_FK_RANGE,
            .fk.range = {.lastkey = 0, .keystep = 1, .limit = 0},
        },
        {0},
    };
    RedisModuleCommandInfo info = {
        .version = REDISMODULE_COMMAND_INFO_VERSION,
        .summary = row->summary,
        .complexity = "O(1)",
        .since = "0.1.0",
        .arity = row->arity,
        .key_specs = key_specs,
        .args = row->args,
    };
    RedisModuleCommand *registered = RedisModule_GetCommand(ctx, row->name);
    if (optional_api.set_acl_categories != NULL &&
        optional_api.set_acl_categories(registered, row->acl_categories) != REDISMODULE_OK)
        return REDISMODULE_ERR;
    return RedisModule_SetCommandInfo(registered, &info);
}

int commands_register(RedisModuleCtx *ctx) {
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (register_row(ctx, &table[i]) != REDISMODULE_OK) {
            RedisModule_Log(ctx, "warning", "the command %s cannot be registered", table[i].name);
            return REDISMODULE_ERR;
        }
    return REDISMODULE_OK;
}
