/* SPDX-License-Identifier: BSD-3-Clause */
/* selftest.c - dlock as another module meets it; a module of its own, for tests only.
 *
 *   DLOCK.SELFTEST        the names of the cases
 *   DLOCK.SELFTEST name   runs one inside the server, through RedisModule_Call; PASS, or an error
 *                         with the step, the reply and what it should be
 *
 * A case is a list of calls and their replies. It starts without the key "lock" and ends with the
 * first reply that is another one. Besides commands, which may have flags of RedisModule_Call in
 * front ("%!EW"), a step may be
 *
 *   info FIELD   of the lock or of its only holder
 *   left         of the lease or of the TTL of a string, rounded to ten seconds
 *   sleep        5 ms go by, within this one command
 *
 * A large integer must be a fence, and is shown as "a new fence" if it is above the last one, or as
 * "the same fence". A reply that begins with "-" is the begin of an error. */
#define REDISMODULE_MAIN
#include "redismodule.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { STEPS_MAX = 14, WORDS_MAX = 10, TEXT_MAX = 200, LARGE = 1000000000 };

typedef struct step {
    const char *call, *reply;
} step;

typedef struct test_case {
    const char *name;
    step steps[STEPS_MAX + 1]; /* the last one is empty */
} test_case;

#define ACQUIRE(token, lease_ms) "DLOCK.ACQUIRE lock " token " PX " lease_ms
#define EXTEND(token, lease_ms)  "DLOCK.EXTEND lock " token " PX " lease_ms
#define RELEASE(token)           "DLOCK.RELEASE lock " token

/* clang-format off */
#define HELD    {ACQUIRE("me", "60000"), "a new fence"}
#define IS_FREE {"DLOCK.INFO lock", "null"}, {"EXISTS lock", ":0"}

static const test_case cases[] = {
    {"a_free_lock_is_granted_with_a_fence", {
        IS_FREE, HELD, {"info fence", "the same fence"}, {"info token", "me"},
        {"info kind", "lock"}, {"info lease", ":60000"}, {"TYPE lock", "dlock-key"},
        {"PTTL lock", ":-1"}, {ACQUIRE("you", "60000"), "null"}, {"info token", "me"}}},
    {"the_same_token_gets_the_same_fence", {
        HELD, {ACQUIRE("me", "120000"), "the same fence"}, {"left", ":120000"},
        {ACQUIRE("me", "60000"), "the same fence"}, {"left", ":120000"}}},
    {"each_grant_has_a_higher_fence", {
        HELD, {RELEASE("me"), ":1"}, HELD, {RELEASE("me"), ":1"}, HELD}},
    {"only_a_release_by_the_holder_frees_the_key", {
        HELD, {RELEASE("you"), ":0"}, {RELEASE("m"), ":0"}, {RELEASE("mee"), ":0"},
        {"info fence", "the same fence"}, {RELEASE("me"), ":1"}, IS_FREE, {RELEASE("me"), ":0"}}},
    {"an_extension_never_shortens", {
        {EXTEND("me", "60000"), ":0"}, IS_FREE, HELD, {EXTEND("you", "120000"), ":0"},
        {"left", ":60000"}, {EXTEND("me", "120000"), ":1"}, {"left", ":120000"},
        {EXTEND("me", "30000"), ":1"}, {"left", ":120000"}, {"PTTL lock", ":-1"}}},
    {"info_is_a_map_or_null", {
        {"%3 DLOCK.INFO lock", "null"}, HELD, {"DLOCK.INFO lock", "array of 8"},
        {"%3 DLOCK.INFO lock", "map of 4"}}},
    {"a_plain_string_is_somebody_s_lock", {
        {"SET lock me PX 60000", "OK"}, {ACQUIRE("you", "60000"), "null"},
        {ACQUIRE("me", "60000"), "null"}, {"info kind", "string"}, {"info token", "me"},
        {RELEASE("you"), ":0"}, {EXTEND("me", "120000"), ":1"}, {"left", ":120000"},
        {RELEASE("me"), ":1"}, IS_FREE}},
    {"a_held_lock_stops_set_nx", {
        HELD, {"SET lock you NX", "null"}, {"info kind", "lock"}, {"GET lock", "-WRONGTYPE "}}},
    {"any_other_type_is_the_wrong_one", {
        {"RPUSH lock me", ":1"}, {ACQUIRE("me", "60000"), "-WRONGTYPE "},
        {RELEASE("me"), "-WRONGTYPE "}, {EXTEND("me", "60000"), "-WRONGTYPE "},
        {"DLOCK.INFO lock", "-WRONGTYPE "}, {"LLEN lock", ":1"}}},
    {"a_bad_call_is_one_error_and_changes_nothing", {
        {"DLOCK.ACQUIRE lock ", "-ERR token"}, {ACQUIRE("me", "0"), "-ERR PX"},
        {ACQUIRE("me", "9223372036854775807"), "-ERR PX"}, {EXTEND("me", "0"), "-ERR PX"},
        {"DLOCK.RELEASE lock ", "-ERR token"}, {"DLOCK.ACQUIRE lock me", "-ERR PX"}, IS_FREE}},
    {"a_call_with_too_few_words_does_not_run", {
        {"DLOCK.RELEASE lock", "EINVAL"}, {"%E DLOCK.RELEASE lock", "-ERR wrong number"}}},
    {"a_caller_that_may_not_write_can_only_look", {
        {"%EW DLOCK.ACQUIRE lock me PX 60000", "-"}, {"%EW DLOCK.RELEASE lock me", "-"},
        {"%EW DLOCK.INFO lock", "null"}}},
    /* For the core one command, this one, is one moment. For a lease it is not. */
    {"a_lease_ends_also_within_one_command", {
        {ACQUIRE("me", "1"), "a new fence"}, {"sleep", ""}, {"DLOCK.INFO lock", "null"},
        {RELEASE("me"), ":0"}, {ACQUIRE("you", "60000"), "a new fence"}, {RELEASE("you"), ":1"}}},
    {"a_lock_whose_end_is_set_to_the_past_is_free", {
        HELD, {"PEXPIREAT lock 1", ":1"}, IS_FREE, {ACQUIRE("you", "60000"), "a new fence"}}},
    /* Whoever calls this reads in the replication stream that it was. */
    {"a_call_is_replicated_when_the_caller_wants_it", {
        {"%! DLOCK.ACQUIRE lock me PX 60000", "a new fence"}, {"%! DLOCK.RELEASE lock me", ":1"}}},
    {"a_module_that_calls_does_not_wait", {
        HELD, {ACQUIRE("you", "60000") " WAIT 60000", "null"}, {"info waiters", ":0"}}},
    {"a_module_that_calls_has_no_session", {
        {ACQUIRE("me", "60000") " SESSION", "-ERR SESSION needs a connection"}, IS_FREE}},
};

/* Not listed, but it can be asked for: the proof that a case can fail. */
static const test_case failing = {"a_failing_case_is_reported", {
    HELD, {RELEASE("you"), ":1"}, {RELEASE("me"), ":0"}}};
/* clang-format on */
enum { CASE_COUNT = sizeof(cases) / sizeof(cases[0]) };

static int type_of(RedisModuleCallReply *reply) {
    return reply == NULL ? REDISMODULE_REPLY_UNKNOWN : RedisModule_CallReplyType(reply);
}

/* The last word may be empty. */
static RedisModuleCallReply *call(RedisModuleCtx *ctx, const char *line) {
    RedisModuleString *words[WORDS_MAX];
    char format[16] = "v", name[TEXT_MAX];
    size_t count = 0, flags = line[0] == '%' ? strcspn(line, " ") - 1 : 0;
    if (flags > 0) {
        snprintf(format, sizeof(format), "%.*sv", (int)flags, line + 1);
        line += flags + 2;
    }
    size_t length = strcspn(line, " ");
    snprintf(name, sizeof(name), "%.*s", (int)length, line);
    for (line += length; *line == ' '; line += length) {
        length = strcspn(++line, " ");
        words[count++] = RedisModule_CreateString(ctx, line, length);
    }
    errno = 0;
    return RedisModule_Call(ctx, name, format, words, count);
}

static bool is_text(RedisModuleCallReply *reply, const char *text) {
    if (type_of(reply) != REDISMODULE_REPLY_STRING) return false;
    size_t length;
    const char *bytes = RedisModule_CallReplyStringPtr(reply, &length);
    return length == strlen(text) && memcmp(bytes, text, length) == 0;
}

/* The value of a field in a map of RESP2, which is a flat array, or NULL. */
static RedisModuleCallReply *field_of(RedisModuleCallReply *map, const char *field) {
    if (type_of(map) != REDISMODULE_REPLY_ARRAY) return NULL;
    for (size_t i = 0; i + 1 < RedisModule_CallReplyLength(map); i += 2)
        if (is_text(RedisModule_CallReplyArrayElement(map, i), field))
            return RedisModule_CallReplyArrayElement(map, i + 1);
    return NULL;
}

static RedisModuleCallReply *info(RedisModuleCtx *ctx, const char *field) {
    RedisModuleCallReply *reply = call(ctx, "DLOCK.INFO lock");
    RedisModuleCallReply *value = field_of(reply, field), *holders = field_of(reply, "holders");
    if (value != NULL || holders == NULL) return value;
    return field_of(RedisModule_CallReplyArrayElement(holders, 0), field);
}

static void show_number(long long number, long long *last_fence, char shown[TEXT_MAX]) {
    if (number < LARGE) {
        snprintf(shown, TEXT_MAX, ":%lld", number);
        return;
    }
    const char *old = number == *last_fence ? "the same" : "an old";
    snprintf(shown, TEXT_MAX, "%s fence", number > *last_fence ? "a new" : old);
    *last_fence = number;
}

static void show(RedisModuleCallReply *reply, long long *last_fence, char shown[TEXT_MAX]) {
    int type = type_of(reply);
    size_t length = 0;
    const char *bytes = "";
    if (type == REDISMODULE_REPLY_STRING || type == REDISMODULE_REPLY_ERROR)
        bytes = RedisModule_CallReplyStringPtr(reply, &length);
    else if (type == REDISMODULE_REPLY_ARRAY || type == REDISMODULE_REPLY_MAP)
        length = RedisModule_CallReplyLength(reply);

    if (type == REDISMODULE_REPLY_INTEGER)
        show_number(RedisModule_CallReplyInteger(reply), last_fence, shown);
    else if (type == REDISMODULE_REPLY_NULL)
        snprintf(shown, TEXT_MAX, "null");
    else if (type == REDISMODULE_REPLY_ARRAY || type == REDISMODULE_REPLY_MAP)
        snprintf(shown, TEXT_MAX, "%s of %zu", type == REDISMODULE_REPLY_MAP ? "map" : "array",
                 length);
    else if (reply == NULL)
        snprintf(shown, TEXT_MAX, "%s", errno == EINVAL ? "EINVAL" : "no reply");
    else
        snprintf(shown, TEXT_MAX, "%s%.*s", type == REDISMODULE_REPLY_ERROR ? "-" : "", (int)length,
                 bytes);
}

static void run_step(RedisModuleCtx *ctx, const char *line, long long *last_fence,
                     char shown[TEXT_MAX]) {
    shown[0] = '\0';
    if (strcmp(line, "sleep") == 0) {
        long long end_ms = RedisModule_Milliseconds() + 5;
        while (RedisModule_Milliseconds() <= end_ms) {
        }
    } else if (strcmp(line, "left") == 0) {
        RedisModuleCallReply *left = info(ctx, "ttl");
        long long left_ms = left == NULL ? -1 : RedisModule_CallReplyInteger(left);
        snprintf(shown, TEXT_MAX, ":%lld", (left_ms + 5000) / 10000 * 10000);
    } else if (strncmp(line, "info ", 5) == 0) {
        show(info(ctx, line + 5), last_fence, shown);
    } else {
        show(call(ctx, line), last_fence, shown);
    }
}

static int run_case(RedisModuleCtx *ctx, const test_case *test) {
    char shown[TEXT_MAX], failure[3 * TEXT_MAX];
    long long last_fence = 0;
    for (int i = 0; test->steps[i].call != NULL; i++) {
        const step *each = &test->steps[i];
        run_step(ctx, each->call, &last_fence, shown);
        bool is_right = each->reply[0] == '-'
                            ? strncmp(shown, each->reply, strlen(each->reply)) == 0
                            : strcmp(shown, each->reply) == 0;
        if (is_right) continue;
        snprintf(failure, sizeof(failure), "ERR step %d, %s: %s, not %s", i + 1, each->call, shown,
                 each->reply);
        return RedisModule_ReplyWithError(ctx, failure);
    }
    return RedisModule_ReplyWithSimpleString(ctx, "PASS");
}

static const test_case *find(const char *name) {
    for (int i = 0; i < CASE_COUNT; i++)
        if (strcmp(cases[i].name, name) == 0) return &cases[i];
    return strcmp(failing.name, name) == 0 ? &failing : NULL;
}

static int reply_names(RedisModuleCtx *ctx) {
    RedisModule_ReplyWithArray(ctx, CASE_COUNT);
    for (int i = 0; i < CASE_COUNT; i++)
        RedisModule_ReplyWithCString(ctx, cases[i].name);
    return REDISMODULE_OK;
}

/* DLOCK.SELFTEST [case] */
static int cmd_selftest(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc > 2) return RedisModule_WrongArity(ctx);
    if (argc == 1) return reply_names(ctx);
    const test_case *test = find(RedisModule_StringPtrLen(argv[1], NULL));
    if (test == NULL) return RedisModule_ReplyWithError(ctx, "ERR no such case");

    RedisModule_AutoMemory(ctx);
    call(ctx, "DEL lock");
    run_case(ctx, test);
    call(ctx, "DEL lock");
    return REDISMODULE_OK;
}

__attribute__((visibility("default"))) int RedisModule_OnLoad(RedisModuleCtx *ctx,
                                                              RedisModuleString **argv, int argc);

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    if (RedisModule_Init(ctx, "dlock_selftest", 1, REDISMODULE_APIVER_1) != REDISMODULE_OK)
        return REDISMODULE_ERR;
    return RedisModule_CreateCommand(ctx, "dlock.selftest", cmd_selftest, "write", 0, 0, 0);
}
