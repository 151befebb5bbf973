/* SPDX-License-Identifier: BSD-3-Clause */
/* commands.c - the commands: the handlers and a table.
 *
 * A handler parses, opens the lock, lets transition.c judge and apply, closes the lock, replies.
 * A handler touches no key before all arguments are parsed, and sends exactly one reply on every
 * path.
 *
 * To add a command: a handler, its arguments, and a row in the table. COMMAND DOCS follows from
 * the row. */
#include "commands.h"

#include "args.h"
#include "caller.h"
#include "fences.h"
#include "guard.h"
#include "guard_rules.h"
#include "info_command.h"
#include "mailbox.h"
#include "replicate.h"
#include "server.h"
#include "session_commands.h"
#include "settings.h"
#include "transition_all.h"

#define HELD_SHARED                                                                                \
    "ERR token holds this lock as SHARED: release it before asking for it without SHARED"
#define HELD_EXCLUSIVE                                                                             \
    "ERR token holds this lock without SHARED: release it before asking for it as SHARED"

#define ONLY_REPLAYED "only a master, or a file that is loaded, may send it"
#define HELD_PARTLY                                                                                \
    "ERR token holds some of these locks, and cannot wait for the others: release it first"

/* The key is the first argument after the name of the command. */
static bool open_or_reply(lock_entry *entry, RedisModuleCtx *ctx, RedisModuleString **argv,
                          int argc, lock_access access) {
    if (!lock_store_open(entry, ctx, argv[1], access)) {
        RedisModule_ReplyWithError(ctx, REDISMODULE_ERRORMSG_WRONGTYPE);
        return false;
    }
    entry->argv = argv;
    entry->argc = argc;
    return true;
}

static bool has_token(lock_entry *entry, lock_token token) {
    transition_settle(entry);
    return transition_has(entry, token);
}

/* The locks of a request: the entry, or, if it is NULL, the set. */
typedef struct request_locks {
    RedisModuleCtx *ctx;
    lock_entry *entry;
    lock_set *set;
} request_locks;

static bool has_locks(const request_locks *locks, lock_token token) {
    return locks->entry != NULL ? has_token(locks->entry, token)
                                : transition_all_has(locks->set, token);
}

/* Some well-formed requests are refused all the same: because the client has no connection, or
 * because of a setting. A token that has the lock, or a place in the queue, keeps it. */
static ALWAYS_INLINE bool is_allowed_or_reply(const request_locks *locks,
                                              const lock_request *request) {
    const char *error = NULL;
    if (request->is_session && request->via == NULL && !caller_has_connection(locks->ctx))
        error = "ERR SESSION needs a connection: scripts, modules and DLOCK.GUARD have none";
    else if (settings.drain && !has_locks(locks, request->token))
        error = "ERR the server is about to run without locks: dlock.drain is yes";
    else if (settings.require_noeviction && server_may_evict_locks() &&
             !has_locks(locks, request->token))
        error = "ERR maxmemory-policy can evict locks, and dlock.require-noeviction is yes";
    else if (request->is_session && request->via != NULL && mailbox_is_full(request->via) &&
             !has_locks(locks, request->token))
        error = MAILBOX_FULL;
    if (error != NULL) RedisModule_ReplyWithError(locks->ctx, error);
    return error == NULL;
}

/* Replies unless the request has to wait. False: it has to. held: the lock, if the request has it
 * now. */
static ALWAYS_INLINE bool reply_acquired(RedisModuleCtx *ctx, transition_answer answer,
                                         const lock_request *request, const lock_state *held) {
    bool may_wait = request->wait_ms > 0 && answer != TRANSITION_HELD &&
                    answer != TRANSITION_OTHER_MODE &&
                    (request->via != NULL || caller_may_block(ctx));
    if (answer == TRANSITION_HELD)
        RedisModule_ReplyWithLongLong(ctx, lock_first_fence(held, request));
    else if (answer == TRANSITION_OTHER_MODE)
        RedisModule_ReplyWithError(ctx, request->is_shared ? HELD_EXCLUSIVE : HELD_SHARED);
    else if (may_wait && answer == TRANSITION_PART)
        RedisModule_ReplyWithError(ctx, HELD_PARTLY);
    else if (!may_wait)
        RedisModule_ReplyWithNull(ctx);
    return !may_wait || answer == TRANSITION_PART;
}

static void acquire(lock_entry *entry, const lock_request *request) {
    transition_answer answer = transition_acquire(entry, request);
    if (!reply_acquired(entry->ctx, answer, request, &entry->held))
        transition_wait_or_reply(entry, request);
}

/* DLOCK.ACQUIRE key token PX lease-ms [WAIT wait-ms] [VIA session] [SESSION [GRACE grace-ms]]
 * [SHARED [MAX n]] [FENCE fence] [FENCES count] */
static int cmd_acquire(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    lock_request request;
    lock_entry entry;
    if (argc < 3) return RedisModule_WrongArity(ctx); /* a file is loaded without this check */
    if (!args_parse_acquire_or_reply(ctx, argv + 2, argc - 2, &request)) return REDISMODULE_OK;
    if (!open_or_reply(&entry, ctx, argv, argc, LOCK_WRITE)) return REDISMODULE_OK;
    request_locks locks = {.ctx = ctx, .entry = &entry};
    if (is_allowed_or_reply(&locks, &request)) acquire(&entry, &request);
    transition_close(&entry);
    return REDISMODULE_OK;
}

/* In a cluster the server has checked the first name only. While the slot moves, some of the locks
 * may be at the other node already. */
static bool are_here_or_reply(RedisModuleCtx *ctx, RedisModuleString **names, int count) {
    const char *error = NULL;
    if (!server_is_cluster() || server_is_replaying(ctx)) return true;
    if (!server_share_slot(names, count))
        error = "CROSSSLOT the names are not in one slot: give all of them the same hash tag";
    else if (count > 1 && !server_are_here(ctx, names, count))
        error = "TRYAGAIN the slot of these locks is moving, and not all of them are here";
    if (error != NULL) RedisModule_ReplyWithError(ctx, error);
    return error == NULL;
}

static bool open_all_or_reply(lock_set *set, RedisModuleCtx *ctx, RedisModuleString **names,
                              int count, lock_access access) {
    if (!are_here_or_reply(ctx, names, count)) return false;
    if (transition_all_open(set, ctx, names, count, access)) return true;
    RedisModule_ReplyWithError(ctx, REDISMODULE_ERRORMSG_WRONGTYPE);
    return false;
}

static void acquire_all(lock_set *set, const lock_request *request) {
    transition_answer answer = transition_all_acquire(set, request);
    if (!reply_acquired(set->ctx, answer, request, &set->entries[0].held))
        transition_all_wait_or_reply(set, request);
}

/* DLOCK.ACQUIREALL count key [key ...] token, and the options of ACQUIRE */
static int cmd_acquire_all(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    int count;
    lock_request request;
    lock_set set;
    if (!args_parse_names_or_reply(ctx, argv, argc, &count)) return REDISMODULE_OK;
    RedisModuleString **names = argv + 2, **words = names + count;
    if (!args_parse_acquire_or_reply(ctx, words, argc - 2 - count, &request)) return REDISMODULE_OK;
    if (!open_all_or_reply(&set, ctx, names, count, LOCK_WRITE)) return REDISMODULE_OK;
    set.argv = argv;
    set.argc = argc;
    request_locks locks = {.ctx = ctx, .set = &set};
    if (is_allowed_or_reply(&locks, &request)) acquire_all(&set, &request);
    transition_all_close(&set);
    return REDISMODULE_OK;
}

/* DLOCK.RELEASE key token */
static int cmd_release(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    lock_token token;
    lock_entry entry;
    if (argc != 3) return RedisModule_WrongArity(ctx); /* a file is loaded without this check */
    if (!args_parse_token_or_reply(ctx, argv[2], &token)) return REDISMODULE_OK;
    if (!open_or_reply(&entry, ctx, argv, argc, LOCK_WRITE)) return REDISMODULE_OK;
    bool was_held = transition_release(&entry, token);
    transition_close(&entry);
    return RedisModule_ReplyWithLongLong(ctx, was_held);
}

/* DLOCK.RELEASEALL count key [key ...] token */
static int cmd_release_all(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    int count;
    lock_token token;
    lock_set set;
    if (!args_parse_names_or_reply(ctx, argv, argc, &count)) return REDISMODULE_OK;
    if (argc != count + 3) return RedisModule_WrongArity(ctx);
    if (!args_parse_token_or_reply(ctx, argv[count + 2], &token)) return REDISMODULE_OK;
    if (!open_all_or_reply(&set, ctx, argv + 2, count, LOCK_WRITE)) return REDISMODULE_OK;
    int released = transition_all_release(&set, token);
    transition_all_close(&set);
    return RedisModule_ReplyWithLongLong(ctx, released);
}

/* DLOCK.EXTEND key token PX lease-ms */
static int cmd_extend(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    lock_request request;
    lock_entry entry;
    if (argc < 3) return RedisModule_WrongArity(ctx); /* a file is loaded without this check */
    if (!args_parse_extend_or_reply(ctx, argv + 2, argc - 2, &request)) return REDISMODULE_OK;
    if (!open_or_reply(&entry, ctx, argv, argc, LOCK_WRITE)) return REDISMODULE_OK;
    transition_answer answer = transition_extend(&entry, &request);
    transition_close(&entry);
    if (answer == TRANSITION_KEPT)
        return RedisModule_ReplyWithError(ctx, "ERR this hold has no lease of its own: it lasts as "
                                               "long as its session");
    return RedisModule_ReplyWithLongLong(ctx, answer == TRANSITION_HELD);
}

static bool is_replaying_or_reply(RedisModuleCtx *ctx, const char *error) {
    if (server_is_replaying(ctx)) return true;
    RedisModule_ReplyWithError(ctx, error);
    return false;
}

/* DLOCK.APPLY key token fence lease-ms [SHARED]: applies a state that replicate.c has written */
static int cmd_apply(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    lock_state state;
    lock_entry entry;
    if (server_is_probing()) return RedisModule_ReplyWithSimpleString(ctx, "OK");
    if (argc < 5) return RedisModule_WrongArity(ctx); /* a file is loaded without this check */
    if (!is_replaying_or_reply(ctx, "ERR DLOCK.APPLY is internal: " ONLY_REPLAYED))
        return REDISMODULE_OK;
    if (!args_parse_apply_or_reply(ctx, argv + 2, argc - 2, &state)) return REDISMODULE_OK;
    if (!open_or_reply(&entry, ctx, argv, argc, LOCK_OVERWRITE)) return REDISMODULE_OK;
    transition_apply(&entry, &state);
    replicate_command(ctx);
    lock_store_close(&entry);
    return RedisModule_ReplyWithSimpleString(ctx, "OK");
}

/* DLOCK.APPLYALL count key [key ...] token fence lease-ms [SHARED]: the same for several locks */
static int cmd_apply_all(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    int count;
    lock_state state;
    lock_set set;
    if (!is_replaying_or_reply(ctx, "ERR DLOCK.APPLYALL is internal: " ONLY_REPLAYED))
        return REDISMODULE_OK;
    if (!args_parse_names_or_reply(ctx, argv, argc, &count)) return REDISMODULE_OK;
    if (argc < count + 5) return RedisModule_WrongArity(ctx);
    RedisModuleString **names = argv + 2, **words = names + count;
    if (!args_parse_apply_or_reply(ctx, words, argc - 2 - count, &state)) return REDISMODULE_OK;
    if (!open_all_or_reply(&set, ctx, names, count, LOCK_OVERWRITE)) return REDISMODULE_OK;
    transition_all_apply(&set, &state);
    transition_all_close(&set);
    return RedisModule_ReplyWithSimpleString(ctx, "OK");
}

/* DLOCK.CLOCK base-us clock-us: the clock of the master (fence.h), or of the server that wrote the
 * file */
static int cmd_clock(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    int64_t base_us, clock_us;
    if (argc != 3) return RedisModule_WrongArity(ctx); /* a file is loaded without this check */
    if (!is_replaying_or_reply(ctx, "ERR DLOCK.CLOCK is internal: " ONLY_REPLAYED))
        return REDISMODULE_OK;
    if (!args_parse_clock_or_reply(ctx, argv + 1, &base_us, &clock_us)) return REDISMODULE_OK;
    fence_hear(base_us, clock_us, fences_time());
    replicate_command(ctx);
    return RedisModule_ReplyWithSimpleString(ctx, "OK");
}

/* An argument as newer servers describe arguments: with one member more than in the header of
 * 7.0. The server gets the size of the struct, so older servers skip the member. */
typedef struct command_arg {
    RedisModuleCommandArg known;
    const char *display_text;
} command_arg;

static const RedisModuleCommandInfoVersion info_version = {
    .version = 1,
    .sizeof_historyentry = sizeof(RedisModuleCommandHistoryEntry),
    .sizeof_keyspec = sizeof(RedisModuleCommandKeySpec),
    .sizeof_arg = sizeof(command_arg),
};

/* clang-format off */
#define ARG(arg_name, arg_type, ...) \
    {.known = {.name = (arg_name), .type = REDISMODULE_ARG_TYPE_##arg_type, __VA_ARGS__}}
#define ARG_KEY ARG("key", KEY, .key_spec_index = 0)
#define ARG_KEYS \
    ARG("count", INTEGER, .key_spec_index = -1), \
    ARG("key", KEY, .key_spec_index = 0, .flags = REDISMODULE_CMD_ARG_MULTIPLE)
#define ARG_WORD(arg_name, arg_type) ARG(arg_name, arg_type, .key_spec_index = -1)
#define ARG_OPTION(arg_name, arg_type, word, arg_flags) \
    ARG(arg_name, arg_type, .key_spec_index = -1, .token = (word), .flags = (arg_flags))
#define ARG_LEASE ARG_OPTION("lease-ms", INTEGER, "PX", 0)
#define ARG_END {.known = {.name = NULL}}
/* clang-format on */

static command_arg shared_args[] = {
    ARG_OPTION("shared", PURE_TOKEN, "SHARED", 0),
    ARG_OPTION("n", INTEGER, "MAX", REDISMODULE_CMD_ARG_OPTIONAL),
    ARG_END,
};
static command_arg holding_args[] = {
    ARG_OPTION("session", PURE_TOKEN, "SESSION", 0),
    ARG_OPTION("grace-ms", INTEGER, "GRACE", REDISMODULE_CMD_ARG_OPTIONAL),
    ARG_END,
};
/* clang-format off */
#define ACQUIRE_OPTIONS                                                                            \
    ARG_WORD("token", STRING),                                                                     \
    ARG_OPTION("lease-ms", INTEGER, "PX", REDISMODULE_CMD_ARG_OPTIONAL),                           \
    ARG_OPTION("wait-ms", INTEGER, "WAIT", REDISMODULE_CMD_ARG_OPTIONAL),                          \
    ARG_OPTION("session", STRING, "VIA", REDISMODULE_CMD_ARG_OPTIONAL),                            \
    ARG("holding", BLOCK, .key_spec_index = -1, .flags = REDISMODULE_CMD_ARG_OPTIONAL,             \
        .subargs = &holding_args->known),                                                          \
    ARG("sharing", BLOCK, .key_spec_index = -1, .flags = REDISMODULE_CMD_ARG_OPTIONAL,             \
        .subargs = &shared_args->known),                                                           \
    ARG_OPTION("fence", INTEGER, "FENCE", REDISMODULE_CMD_ARG_OPTIONAL),                           \
    ARG_OPTION("count", INTEGER, "FENCES", REDISMODULE_CMD_ARG_OPTIONAL),                          \
    ARG_END
/* clang-format on */
static command_arg acquire_args[] = {ARG_KEY, ACQUIRE_OPTIONS};
static command_arg acquire_all_args[] = {ARG_KEYS, ACQUIRE_OPTIONS};
static command_arg extend_args[] = {ARG_KEY, ARG_WORD("token", STRING), ARG_LEASE, ARG_END};
static command_arg release_args[] = {ARG_KEY, ARG_WORD("token", STRING), ARG_END};
static command_arg release_all_args[] = {ARG_KEYS, ARG_WORD("token", STRING), ARG_END};
static command_arg info_args[] = {
    ARG_KEY,
    ARG_OPTION("count", INTEGER, "WAITERS", REDISMODULE_CMD_ARG_OPTIONAL),
    ARG_END,
};
static command_arg heartbeat_args[] = {
    ARG_OPTION("timeout-ms", INTEGER, "PX", 0),
    ARG_OPTION("number", INTEGER, "ACK", REDISMODULE_CMD_ARG_OPTIONAL),
    ARG_END,
};
static command_arg session_actions[] = {
    ARG("heartbeat", BLOCK, .key_spec_index = -1, .subargs = &heartbeat_args->known),
    ARG_OPTION("end", PURE_TOKEN, "END", 0),
    ARG_END,
};
static command_arg session_args[] = {
    ARG_WORD("session", STRING),
    ARG("action", ONEOF, .key_spec_index = -1, .subargs = &session_actions->known),
    ARG_END,
};
static command_arg watch_args[] = {ARG_KEY, ARG_WORD("session", STRING), ARG_END};
/* clang-format off */
#define APPLY_WORDS                                                                                \
    ARG_WORD("token", STRING),                                                                     \
    ARG_WORD("fence", INTEGER),                                                                    \
    ARG_WORD("lease-ms", INTEGER),                                                                 \
    ARG_OPTION("shared", PURE_TOKEN, "SHARED", REDISMODULE_CMD_ARG_OPTIONAL),                      \
    ARG_END
/* clang-format on */
static command_arg apply_args[] = {ARG_KEY, APPLY_WORDS};
static command_arg apply_all_args[] = {ARG_KEYS, APPLY_WORDS};

static command_arg clock_args[] = {ARG_WORD("base-us", INTEGER), ARG_WORD("clock-us", INTEGER),
                                   ARG_END};

static command_arg guard_args[] = {
    ARG_KEY,
    ARG_WORD("token", STRING),
    ARG_WORD("command", STRING),
    ARG("arg", STRING, .key_spec_index = -1,
        .flags = REDISMODULE_CMD_ARG_OPTIONAL | REDISMODULE_CMD_ARG_MULTIPLE),
    ARG_END,
};

typedef struct command {
    const char *name;
    RedisModuleCmdFunc handler;
    const char *flags;
    const char *acl_categories; /* since 7.2; before, commands of modules have no categories */
    int arity;
    const char *complexity;
    uint64_t key_flags; /* 0: the command has no key */
    const char *summary;
    command_arg *args;
} command;

/* The arity of ACQUIRE and EXTEND does not count PX and its value, so that our error reply can
 * name the missing option. */
static const command table[] = {
    {"dlock.acquire", cmd_acquire, "write deny-oom blocking fast", "write fast blocking", -3,
     "O(1)", REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_UPDATE,
     "Takes a lock, exclusive or shared, or waits for it. The token must be new for every "
     "acquisition: the same token gets the same fence again. The reply is the fence, an integer "
     "above 0, if token holds the lock now; else null, at once or when the wait is over.",
     acquire_args},
    {"dlock.acquireall", cmd_acquire_all, "write deny-oom blocking", "write slow blocking", -4,
     "O(N), where N is the number of keys",
     REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_UPDATE,
     "Takes several locks in one step, all or none, or waits for all of them. The reply is that of "
     "DLOCK.ACQUIRE, with one fence for all locks.",
     acquire_all_args},
    {"dlock.release", cmd_release, "write fast", "write fast", 3, "O(1)",
     REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_DELETE,
     "Releases a lock. The reply is 1 if token held the lock, else 0. If token waits for the lock "
     "instead, its wait ends.",
     release_args},
    {"dlock.releaseall", cmd_release_all, "write", "write slow", -4,
     "O(N), where N is the number of keys",
     REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_DELETE,
     "Releases several locks in one step. The reply is the number of locks that token held. If "
     "token waits for them instead, its wait ends.",
     release_all_args},
    {"dlock.extend", cmd_extend, "write fast", "write fast", -3, "O(1)",
     REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_UPDATE,
     "Makes a lease end lease-ms from now, or later if it already did. The reply is 1 if token "
     "holds the lock; else 0, and nothing has changed.",
     extend_args},
    {"dlock.info", cmd_info, "readonly fast", "read fast", -2,
     "O(N), where N is the number of holders and of waiters shown",
     REDISMODULE_CMD_KEY_RO | REDISMODULE_CMD_KEY_ACCESS,
     "Shows who holds a lock, since when and for how long, and who waits for it. The reply is a "
     "map of kind, mode, holders and waiters, or null if the lock is free.",
     info_args},
    {"dlock.session", cmd_session, "blocking fast", "slow blocking connection", -3,
     "O(N), where N is the number of events in the reply", 0,
     "Keeps a session alive, and returns what has happened to it. The reply is an array of the "
     "number of its life and an array of events, which come again until they are acknowledged.",
     session_args},
    {"dlock.watch", cmd_watch, "readonly deny-oom fast", "read fast", 3, "O(1)",
     REDISMODULE_CMD_KEY_RO | REDISMODULE_CMD_KEY_ACCESS,
     "Tells a session whenever the lock changes hands, beginning with the present state. The reply "
     "is OK.",
     watch_args},
    {"dlock.unwatch", cmd_unwatch, "readonly fast", "read fast", 3, "O(1)",
     REDISMODULE_CMD_KEY_RO | REDISMODULE_CMD_KEY_ACCESS,
     "Ends what DLOCK.WATCH has begun. The reply is OK.", watch_args},
    {GUARD_COMMAND, guard_run, "write", "write slow", -4, "O(1) and the cost of the command",
     REDISMODULE_CMD_KEY_RO | REDISMODULE_CMD_KEY_ACCESS,
     "Runs a command only if token holds the lock, in one step. The reply is that of the command, "
     "or the error NOTHELD, and nothing was run.",
     guard_args},
    {REPLICATE_COMMAND, cmd_apply, "write admin fast", "write fast admin dangerous", -5, "O(1)",
     REDISMODULE_CMD_KEY_OW | REDISMODULE_CMD_KEY_UPDATE,
     "Internal: sets the state of a holder as the master or the append-only file says. The "
     "reply is OK.",
     apply_args},
    {REPLICATE_ALL_COMMAND, cmd_apply_all, "write admin", "write slow admin dangerous", -6,
     "O(N), where N is the number of keys", REDISMODULE_CMD_KEY_OW | REDISMODULE_CMD_KEY_UPDATE,
     "Internal: sets the state of a holder of several locks, as DLOCK.APPLY does for one. The "
     "reply is OK.",
     apply_all_args},
    {REPLICATE_CLOCK_COMMAND, cmd_clock, "write admin fast", "write fast admin dangerous", 3,
     "O(1)", 0,
     "Internal: tells the clock from which a master, or the writer of the append-only file, takes "
     "its fences. The reply is OK.",
     clock_args},
};

/* Do the keys come after their number? */
static bool has_count(const command *row) {
    return row->key_flags != 0 && row->args[0].known.type == REDISMODULE_ARG_TYPE_INTEGER;
}

/* The server finds the keys by itself, without a call into the module (getkeys-api): newer servers
 * would call it in an I/O thread, before they know whether the client has logged in. */
static int register_row(RedisModuleCtx *ctx, const command *row) {
    int key = row->key_flags == 0 ? 0 : has_count(row) ? 2 : 1;
    if (RedisModule_CreateCommand(ctx, row->name, row->handler, row->flags, key, key, key > 0) !=
        REDISMODULE_OK)
        return REDISMODULE_ERR;

    /* For clusters, servers look at positions only: of several keys, at the first. This key is
     * among those that follow their number, so the spec is marked as one that names no key. The
     * handler looks at the slots of the others. */
    RedisModuleCommandKeySpec key_specs[] = {
        {
            .flags = row->key_flags,
            .begin_search_type = REDISMODULE_KSPEC_BS_INDEX,
            .bs.index = {.pos = 1},
            .find_keys_type = REDISMODULE_KSPEC_FK_RANGE,
            .fk.range = {.lastkey = 0, .keystep = 1, .limit = 0},
        },
        {0},
        {0},
    };
    if (has_count(row)) {
        key_specs[1] = key_specs[0];
        key_specs[1].flags = REDISMODULE_CMD_KEY_RO | REDISMODULE_CMD_KEY_NOT_KEY;
        key_specs[1].bs.index.pos = 2;
        key_specs[0].find_keys_type = REDISMODULE_KSPEC_FK_KEYNUM;
        key_specs[0].fk.keynum.keynumidx = 0;
        key_specs[0].fk.keynum.firstkey = 1;
        key_specs[0].fk.keynum.keystep = 1;
    }
    RedisModuleCommandInfo info = {
        .version = &info_version,
        .summary = row->summary,
        .complexity = row->complexity,
        .since = "1.0.0",
        .arity = row->arity,
        .key_specs = row->key_flags != 0 ? key_specs : NULL,
        .args = &row->args->known,
    };
    RedisModuleCommand *registered = RedisModule_GetCommand(ctx, row->name);
    if (server_optional.set_acl_categories != NULL &&
        server_optional.set_acl_categories(registered, row->acl_categories) != REDISMODULE_OK)
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
