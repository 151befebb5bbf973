/* SPDX-License-Identifier: BSD-3-Clause */
/* guard.c - see guard.h.
 *
 *   check   does the token hold the lock now? The lock is closed again before the next step
 *   rules   may this command run here? See guard_rules.h
 *   keys    in a cluster: are the keys of the command in the slot of the lock, and at this node?
 *   run     the command runs as the calling user, under the rules for scripts
 *
 * Redis runs commands one by one, so nothing can happen between check and run. Nobody replicates
 * DLOCK.GUARD itself: RM_Call() replicates what the inner command changes. DLOCK.GUARD is a write
 * command even if the inner command only reads: a script that wrote by it must not be killed.
 *
 * The only key of DLOCK.GUARD that Redis knows in advance is the lock. Redis finds it by position,
 * without a call into the module: newer servers look for keys in an I/O thread, before they know
 * whether the client has logged in. RM_Call() checks the keys of the inner command where it is run:
 * the permissions of the user, and the node. */
#include "guard.h"

#include "args.h"
#include "guard_rules.h"
#include "lock_store.h"
#include "server.h"
#include "stats.h"
#include "transition.h"
#include <errno.h>

enum { FIRST_WORD = 3 };

static bool is_running;

/* -- check */

typedef enum guard_check { GUARD_HELD, GUARD_NOT_HELD, GUARD_WRONG_TYPE } guard_check;

static guard_check check(RedisModuleCtx *ctx, RedisModuleString *name, lock_token token) {
    lock_entry entry;
    if (!lock_store_open(&entry, ctx, name, LOCK_READ)) return GUARD_WRONG_TYPE;
    bool is_held = lock_store_find(&entry, token) && !transition_is_over(&entry);
    lock_store_close(&entry);
    return is_held ? GUARD_HELD : GUARD_NOT_HELD;
}

/* -- keys in a cluster */

static bool check_keys_or_reply(RedisModuleCtx *ctx, RedisModuleString *lock,
                                RedisModuleCallReply *found) {
    size_t count = RedisModule_CallReplyLength(found) + 1;
    RedisModuleString **keys = RedisModule_Alloc(count * sizeof(keys[0]));
    keys[0] = lock;
    for (size_t i = 1; i < count; i++)
        keys[i] =
            RedisModule_CreateStringFromCallReply(RedisModule_CallReplyArrayElement(found, i - 1));
    /* RM_Call() would accept any slot of this node. Newer servers then look for the key in the slot
     * of the lock, where it is not. */
    const char *error = NULL;
    if (!server_share_slot(keys, (int)count))
        error = "CROSSSLOT the keys of the command are not in the slot of the lock: give all of "
                "them the same hash tag";
    else if (!server_are_here(ctx, keys, (int)count))
        error = "TRYAGAIN the slot of the lock moves, and not all keys of the command are here";
    if (error != NULL) RedisModule_ReplyWithError(ctx, error);
    for (size_t i = 1; i < count; i++)
        RedisModule_FreeString(ctx, keys[i]);
    RedisModule_Free(keys);
    return error == NULL;
}

/* COMMAND GETKEYS rather than RM_GetCommandKeysWithFlags(), which leaks memory if there are many
 * keys. A command without keys is refused: it may touch any slot. */
static bool keys_are_good_or_reply(RedisModuleCtx *ctx, RedisModuleString *lock,
                                   RedisModuleString **words, int count) {
    RedisModuleCallReply *found =
        RedisModule_Call(ctx, "COMMAND", "Ecv", "GETKEYS", words, (size_t)count);
    bool is_good = false;
    if (found == NULL)
        RedisModule_ReplyWithError(ctx, "ERR Redis does not find the keys of the command");
    else if (RedisModule_CallReplyType(found) == REDISMODULE_REPLY_ARRAY)
        is_good = check_keys_or_reply(ctx, lock, found);
    else
        RedisModule_ReplyWithCallReply(ctx, found); /* the error says why there are no keys */
    if (found != NULL) RedisModule_FreeCallReply(found);
    return is_good;
}

/* -- run */

/* Valkey loses some error replies inside RM_Call(), such as that of GETDEL for a list, if another
 * module has subscribed to keyspace events. Without any reply the client would wait for ever. */
static bool is_empty(RedisModuleCallReply *reply) {
    size_t length;
    RedisModule_CallReplyProto(reply, &length);
    return length == 0;
}

/* The flags of RM_Call() mean: effects are replicated, the command runs as the calling user, is
 * refused at the memory limit, returns errors as replies, follows the rules for scripts, and
 * replies in the protocol of the client. */
static void run(RedisModuleCtx *ctx, RedisModuleString **words, int count) {
    const char *name = RedisModule_StringPtrLen(words[0], NULL);
    is_running = true;
    errno = 0;
    RedisModuleCallReply *reply =
        RedisModule_Call(ctx, name, "!CMES0v", words + 1, (size_t)(count - 1));
    is_running = false;
    if (reply != NULL && errno == 0) stats_count(STATS_GUARDED); /* else it was not run */
    if (reply == NULL) {
        RedisModule_ReplyWithError(ctx, "ERR Redis does not allow the command");
        return;
    }
    if (is_empty(reply))
        RedisModule_ReplyWithError(ctx, "ERR the server did not say how the command ended");
    else
        RedisModule_ReplyWithCallReply(ctx, reply);
    RedisModule_FreeCallReply(reply);
}

static void judge_and_run(RedisModuleCtx *ctx, RedisModuleString *lock, RedisModuleString **words,
                          int count) {
    bool needs_keys;
    if (!guard_rules_allow_or_reply(ctx, words, count, &needs_keys)) return;
    if (needs_keys && server_is_cluster() && !keys_are_good_or_reply(ctx, lock, words, count))
        return;
    run(ctx, words, count);
}

bool guard_is_running(void) {
    return is_running;
}

int guard_run(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    lock_token token;
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
    judge_and_run(ctx, argv[1], argv + FIRST_WORD, argc - FIRST_WORD);
    return REDISMODULE_OK;
}
