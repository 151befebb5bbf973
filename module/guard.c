/* SPDX-License-Identifier: BSD-3-Clause */
/* guard.c - see guard.h.
 *
 *   keys    Redis asks for the keys of the call, for ACL rules and cluster slots: the lock, and the
 *           keys of the inner command, which must be at the same node
 *   check   does the token hold the lock now? The lock is closed again before the next step
 *   run     the inner command runs as the calling user, under the rules for scripts
 *
 * Redis runs commands one by one, so nothing can happen between check and run. Nobody replicates
 * DLOCK.GUARD itself: RM_Call() replicates what the inner command changes.
 *
 * The rules for scripts refuse commands about connections, transactions and administration. They
 * also refuse EVAL and FCALL, and have to: while a slow script runs, Redis reads from all clients
 * but the one that it takes for the caller of the script. Inside RM_Call() this is not our caller,
 * which Redis would then free, or give another command, in the midst of DLOCK.GUARD. So a script
 * has to call DLOCK.GUARD, not the other way round. */
#include "guard.h"

#include "args.h"
#include "lock_store.h"
#include "stats.h"
#include "transition.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { FIRST_WORD = 3, NAME_MAX_SHOWN = 32, ERROR_SIZE = 160 };

static bool is_running;

/* -- which commands may run */

/* These wait, or would return without waiting here. Other commands that can wait, like XREAD, do
 * something useful without it. */
static const char *const waiting[] = {"blpop",  "brpop",    "brpoplpush", "blmove",
                                      "blmpop", "bzpopmin", "bzpopmax",   "bzmpop"};
static const char *const useless[] = {GUARD_COMMAND, "select"};
static const char *const scripts[] = {"eval",  "evalsha",    "eval_ro",
                                      "fcall", "evalsha_ro", "fcall_ro"};

static bool is_one_of(const char *name, size_t length, const char *const names[], size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strlen(names[i]) == length && strncasecmp(name, names[i], length) == 0) return true;
    return false;
}

#define IS_ONE_OF(name, length, names)                                                             \
    is_one_of(name, length, names, sizeof(names) / sizeof(names[0]))

static int refuse(RedisModuleCtx *ctx, const char *name, size_t length, const char *reason) {
    char error[ERROR_SIZE], shown[NAME_MAX_SHOWN + 1];
    if (length > NAME_MAX_SHOWN) length = NAME_MAX_SHOWN;
    for (size_t i = 0; i < length; i++)
        shown[i] = (char)(name[i] > ' ' && name[i] <= '~' ? name[i] : '?');
    shown[length] = '\0';
    snprintf(error, sizeof(error), "ERR DLOCK.GUARD cannot run %s: %s", shown, reason);
    return RedisModule_ReplyWithError(ctx, error);
}

/* -- keys */

/* The lock, and the keys of the inner command; none of these if the inner command is unknown or
 * has no keys. A DLOCK.GUARD inside is never run, and a hundred thousand of them inside each other
 * would need as many calls on the stack here. */
static int tell_keys(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    int count = 0, *flags = NULL;
    RedisModule_KeyAtPosWithFlags(ctx, 1, REDISMODULE_CMD_KEY_RO | REDISMODULE_CMD_KEY_ACCESS);
    if (argc <= FIRST_WORD) return REDISMODULE_OK;
    size_t length;
    const char *name = RedisModule_StringPtrLen(argv[FIRST_WORD], &length);
    if (IS_ONE_OF(name, length, useless)) return REDISMODULE_OK;
    int *keys = RedisModule_GetCommandKeysWithFlags(ctx, argv + FIRST_WORD, argc - FIRST_WORD,
                                                    &count, &flags);
    for (int i = 0; i < count; i++)
        RedisModule_KeyAtPosWithFlags(ctx, FIRST_WORD + keys[i], flags[i]);
    RedisModule_Free(keys);
    RedisModule_Free(flags);
    return REDISMODULE_OK;
}

/* -- check */

typedef enum guard_check { GUARD_HELD, GUARD_NOT_HELD, GUARD_WRONG_TYPE } guard_check;

static guard_check check(RedisModuleCtx *ctx, RedisModuleString *name, lock_token token) {
    lock_entry entry;
    if (!lock_store_open(&entry, ctx, name, LOCK_READ)) return GUARD_WRONG_TYPE;
    bool is_held = lock_store_find(&entry, token) && !transition_is_over(&entry);
    lock_store_close(&entry);
    return is_held ? GUARD_HELD : GUARD_NOT_HELD;
}

/* -- run */

/* RM_Call(): as the calling user, with OOM refused, errors as replies, effects replicated, replies
 * in the protocol of the client, under the rules for scripts. */
static int run(RedisModuleCtx *ctx, RedisModuleString **words, int count) {
    size_t length;
    const char *name = RedisModule_StringPtrLen(words[0], &length);
    if (strlen(name) != length)
        return refuse(ctx, name, length, "no command has a NUL in its name");
    if (IS_ONE_OF(name, length, waiting)) return refuse(ctx, name, length, "it waits");
    if (IS_ONE_OF(name, length, useless)) return refuse(ctx, name, length, "it has no use here");
    if (IS_ONE_OF(name, length, scripts))
        return refuse(ctx, name, length, "let the script call DLOCK.GUARD instead");
    is_running = true;
    RedisModuleCallReply *reply =
        RedisModule_Call(ctx, name, "!CMES0v", words + 1, (size_t)(count - 1));
    is_running = false;
    if (reply == NULL) return refuse(ctx, name, length, "Redis does not allow it");
    RedisModule_ReplyWithCallReply(ctx, reply);
    RedisModule_FreeCallReply(reply);
    return REDISMODULE_OK;
}

bool guard_is_running(void) {
    return is_running;
}

int guard_run(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    lock_token token;
    if (RedisModule_IsKeysPositionRequest(ctx)) return tell_keys(ctx, argv, argc);
    if (argc <= FIRST_WORD) return RedisModule_WrongArity(ctx);
    if (!args_parse_token_or_reply(ctx, argv[2], &token)) return REDISMODULE_OK;
    switch (check(ctx, argv[1], token)) {
    case GUARD_WRONG_TYPE:
        return RedisModule_ReplyWithError(ctx, REDISMODULE_ERRORMSG_WRONGTYPE);
    case GUARD_NOT_HELD:
        stats_count(STATS_GUARDS_REFUSED);
        return RedisModule_ReplyWithError(
            ctx, "NOTHELD the token does not hold the lock, and nothing was run");
    case GUARD_HELD:
        break;
    }
    stats_count(STATS_GUARDED);
    return run(ctx, argv + FIRST_WORD, argc - FIRST_WORD);
}
