/* SPDX-License-Identifier: BSD-3-Clause */
/* guard_rules.c - see guard_rules.h.
 *
 * The rules need no list of all commands: Redis describes each of its commands in COMMAND INFO, by
 * flags and ACL categories. The description is kept per name, because it takes Redis longer to
 * write it than to run a small command.
 *
 *   other modules   may block the client whatever RM_Call() says, and Redis then aborts. Nothing
 *                   tells in advance whether a command does.
 *   scripts         while a slow script runs, Redis reads from all clients but the one that it
 *                   takes for the caller of the script. Inside RM_Call() this is not our caller,
 *                   which Redis would then free, or give another command, in the midst of
 *                   DLOCK.GUARD. So a script has to call DLOCK.GUARD, not the other way round.
 *   waiting         inside RM_Call() there is no client that could wait. BLPOP would return at
 *                   once, and WAIT would count the replicas of some earlier command.
 *   the rest        what a script may not run, and everything about connections, transactions,
 *                   cluster and administration: it does not concern the data that a lock guards. */
#include "guard_rules.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { NAME_SIZE = 128, SHOWN_MAX = 32, ERROR_SIZE = 192 };

/* What is known of a command. */
enum {
    IS_KNOWN = 1 << 0, /* so that no description is NULL */
    IS_CONTAINER = 1 << 1,
    IS_OF_A_MODULE = 1 << 2,
    IS_SCRIPT = 1 << 3,
    WAITS = 1 << 4,
    IS_NO_DATA = 1 << 5,
    NEEDS_KEYS = 1 << 6,
};

/* Fields of a command in the reply of COMMAND INFO. */
enum { INFO_FLAGS = 2, INFO_FIRST_KEY = 3, INFO_CATEGORIES = 6, INFO_SUBCOMMANDS = 9 };

static const struct {
    const char *word; /* a flag, or a category with its @ */
    unsigned facts;
} meanings[] = {
    {"module", IS_OF_A_MODULE}, {"@scripting", IS_SCRIPT},   {"blocking", WAITS},
    {"noscript", IS_NO_DATA},   {"no_multi", IS_NO_DATA},    {"admin", IS_NO_DATA},
    {"asking", IS_NO_DATA},     {"@connection", IS_NO_DATA}, {"write", NEEDS_KEYS},
    {"readonly", NEEDS_KEYS},   {"movablekeys", NEEDS_KEYS},
};

static RedisModuleDict *known; /* facts by name, in lower case; a subcommand is "name|sub" */

/* -- describe */

static unsigned facts_of_words(RedisModuleCallReply *words) {
    unsigned facts = 0;
    for (size_t i = 0; i < RedisModule_CallReplyLength(words); i++) {
        size_t length;
        const char *word =
            RedisModule_CallReplyStringPtr(RedisModule_CallReplyArrayElement(words, i), &length);
        for (size_t j = 0; word != NULL && j < sizeof(meanings) / sizeof(meanings[0]); j++)
            if (strlen(meanings[j].word) == length && memcmp(word, meanings[j].word, length) == 0)
                facts |= meanings[j].facts;
    }
    return facts;
}

static unsigned facts_of_info(RedisModuleCallReply *info) {
    RedisModuleCallReply *first_key = RedisModule_CallReplyArrayElement(info, INFO_FIRST_KEY);
    RedisModuleCallReply *subcommands = RedisModule_CallReplyArrayElement(info, INFO_SUBCOMMANDS);
    unsigned facts = IS_KNOWN;
    facts |= facts_of_words(RedisModule_CallReplyArrayElement(info, INFO_FLAGS));
    facts |= facts_of_words(RedisModule_CallReplyArrayElement(info, INFO_CATEGORIES));
    if (RedisModule_CallReplyInteger(first_key) > 0) facts |= NEEDS_KEYS;
    if (RedisModule_CallReplyLength(subcommands) > 0) facts |= IS_CONTAINER;
    return facts;
}

/* False: Redis cannot say, because COMMAND was renamed, and the error is already sent. facts 0:
 * there is no such command. */
static bool describe_or_reply(RedisModuleCtx *ctx, const char *name, size_t length,
                              unsigned *facts) {
    int is_unknown = 0;
    *facts = (unsigned)(uintptr_t)RedisModule_DictGetC(known, (char *)name, length, &is_unknown);
    if (!is_unknown) return true;
    RedisModuleCallReply *reply = RedisModule_Call(ctx, "COMMAND", "Ecb", "INFO", name, length);
    bool is_answered = reply != NULL && RedisModule_CallReplyType(reply) == REDISMODULE_REPLY_ARRAY;
    if (is_answered) {
        RedisModuleCallReply *info = RedisModule_CallReplyArrayElement(reply, 0);
        if (info != NULL && RedisModule_CallReplyType(info) == REDISMODULE_REPLY_ARRAY) {
            *facts = facts_of_info(info);
            RedisModule_DictSetC(known, (char *)name, length, (void *)(uintptr_t)*facts);
        }
    } else {
        RedisModule_ReplyWithError(
            ctx, "ERR DLOCK.GUARD needs COMMAND INFO, and this server does not have it");
    }
    if (reply != NULL) RedisModule_FreeCallReply(reply);
    return is_answered;
}

/* -- judge */

static bool refuse(RedisModuleCtx *ctx, const char *name, size_t length, const char *reason) {
    char error[ERROR_SIZE], shown[SHOWN_MAX + 1];
    if (length > SHOWN_MAX) length = SHOWN_MAX;
    for (size_t i = 0; i < length; i++)
        shown[i] = (char)(name[i] > ' ' && name[i] <= '~' ? name[i] : '?');
    shown[length] = '\0';
    snprintf(error, sizeof(error), "ERR DLOCK.GUARD cannot run %s: %s", shown, reason);
    RedisModule_ReplyWithError(ctx, error);
    return false;
}

/* These break a rule and do no harm: PING and ECHO only reply, and the other two read what is
 * there when they cannot wait. */
static bool is_exception(const char *name) {
    return strcmp(name, "ping") == 0 || strcmp(name, "echo") == 0 || strcmp(name, "xread") == 0 ||
           strcmp(name, "xreadgroup") == 0;
}

/* NULL: the command may run. name is in lower case. */
static const char *reason_against(RedisModuleCtx *ctx, const char *name, unsigned facts) {
    if (strcmp(name, GUARD_COMMAND) == 0) return "it has no use here";
    bool is_ours = (facts & IS_OF_A_MODULE) && RedisModule_GetCommand(ctx, name) != NULL;
    if ((facts & IS_OF_A_MODULE) && !is_ours)
        return "it belongs to another module: run it in a script that calls DLOCK.GUARD first";
    if (facts & IS_SCRIPT) return "let the script call DLOCK.GUARD instead";
    if (is_exception(name)) return NULL;
    if ((facts & WAITS) && !is_ours) return "it waits";
    if (facts & IS_NO_DATA) return "it is about the connection or the server, not about data";
    return NULL;
}

/* Writes word in lower case to the end of name. False: no room. */
static bool append_word(char name[NAME_SIZE], size_t *length, RedisModuleString *word) {
    size_t added;
    const char *bytes = RedisModule_StringPtrLen(word, &added);
    if (added >= NAME_SIZE - *length) return false;
    for (size_t i = 0; i < added; i++)
        name[(*length)++] = (char)tolower((unsigned char)bytes[i]);
    name[*length] = '\0';
    return true;
}

void guard_rules_init(void) {
    known = RedisModule_CreateDict(NULL);
}

bool guard_rules_allow_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                                bool *needs_keys) {
    char name[NAME_SIZE];
    size_t length = 0, given_length;
    unsigned facts;
    const char *given = RedisModule_StringPtrLen(words[0], &given_length);
    if (!append_word(name, &length, words[0]))
        return refuse(ctx, given, given_length, "no command has so long a name");
    if (strlen(name) != length)
        return refuse(ctx, given, given_length, "no command has a NUL in its name");
    if (!describe_or_reply(ctx, name, length, &facts)) return false;
    if ((facts & IS_CONTAINER) && count > 1) {
        name[length++] = '|';
        if (!append_word(name, &length, words[1]))
            return refuse(ctx, given, given_length, "no subcommand has so long a name");
        if (!describe_or_reply(ctx, name, length, &facts)) return false;
    }
    *needs_keys = (facts & NEEDS_KEYS) != 0;
    const char *reason = reason_against(ctx, name, facts);
    return reason == NULL || refuse(ctx, given, given_length, reason);
}

void guard_rules_forget(void) {
    RedisModule_FreeDict(NULL, known);
    known = RedisModule_CreateDict(NULL);
}
