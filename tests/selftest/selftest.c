/* SPDX-License-Identifier: BSD-3-Clause */
/* selftest.c - dlock as another module meets it; a module of its own, for tests only.
 *
 *   DLOCK.SELFTEST        the names of the cases
 *   DLOCK.SELFTEST name   runs one inside the server, through RedisModule_Call; PASS, or an error
 *                         with the line, the expression and the value
 *
 * A case starts with KEY absent and leaves it behind as it likes. A failed check is written down,
 * the first one only, and the case goes on: the readers of replies below take NULL and any type.
 *
 * To add a case: a function named as a sentence, and its name in the table. */
#define REDISMODULE_MAIN
#include "redismodule.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define KEY        "selftest:lock"
#define WRONG_TYPE "WRONGTYPE "

enum { SHORTER_MS = 30000, LEASE_MS = 60000, LONGER_MS = 120000, FAILURE_MAX = 400 };

/* What integer_of() says of anything that is not an integer. */
#define NO_INTEGER LLONG_MIN

typedef struct test_run {
    RedisModuleCtx *ctx;
    char failure[FAILURE_MAX]; /* empty while everything is as it should be */
} test_run;

#define CHECK(run, condition) check(run, condition, __LINE__, #condition)
#define CHECK_EQUAL(run, actual, expected)                                                         \
    check_equal(run, actual, expected, __LINE__, #actual " == " #expected)

static void check(test_run *run, bool is_true, int line, const char *expression) {
    if (is_true || run->failure[0] != '\0') return;
    snprintf(run->failure, sizeof(run->failure), "ERR %s:%d: %s", __FILE__, line, expression);
}

static void check_equal(test_run *run, long long actual, long long expected, int line,
                        const char *expression) {
    if (actual == expected || run->failure[0] != '\0') return;
    snprintf(run->failure, sizeof(run->failure), "ERR %s:%d: %s: %lld, not %lld", __FILE__, line,
             expression, actual, expected);
}

static int type_of(RedisModuleCallReply *reply) {
    return reply == NULL ? REDISMODULE_REPLY_UNKNOWN : RedisModule_CallReplyType(reply);
}

static long long integer_of(RedisModuleCallReply *reply) {
    if (type_of(reply) != REDISMODULE_REPLY_INTEGER) return NO_INTEGER;
    return RedisModule_CallReplyInteger(reply);
}

static long long length_of(RedisModuleCallReply *reply) {
    return reply == NULL ? 0 : (long long)RedisModule_CallReplyLength(reply);
}

static bool is_null(RedisModuleCallReply *reply) {
    return type_of(reply) == REDISMODULE_REPLY_NULL;
}

static bool is_text(RedisModuleCallReply *reply, const char *text) {
    if (type_of(reply) != REDISMODULE_REPLY_STRING) return false;
    size_t length;
    const char *bytes = RedisModule_CallReplyStringPtr(reply, &length);
    return length == strlen(text) && memcmp(bytes, text, length) == 0;
}

static bool is_error(RedisModuleCallReply *reply, const char *start) {
    if (type_of(reply) != REDISMODULE_REPLY_ERROR) return false;
    size_t length;
    const char *bytes = RedisModule_CallReplyStringPtr(reply, &length);
    return length > strlen(start) && memcmp(bytes, start, strlen(start)) == 0;
}

static RedisModuleCallReply *acquire(test_run *run, const char *token, long long lease_ms) {
    return RedisModule_Call(run->ctx, "DLOCK.ACQUIRE", "cccl", KEY, token, "PX", lease_ms);
}

static RedisModuleCallReply *release(test_run *run, const char *token) {
    return RedisModule_Call(run->ctx, "DLOCK.RELEASE", "cc", KEY, token);
}

static RedisModuleCallReply *extend(test_run *run, const char *token, long long lease_ms) {
    return RedisModule_Call(run->ctx, "DLOCK.EXTEND", "cccl", KEY, token, "PX", lease_ms);
}

/* The value of a field in a map of RESP2, which is a flat array, or NULL. */
static RedisModuleCallReply *field_of(RedisModuleCallReply *map, const char *field) {
    if (type_of(map) != REDISMODULE_REPLY_ARRAY) return NULL;
    for (size_t i = 0; i + 1 < RedisModule_CallReplyLength(map); i += 2)
        if (is_text(RedisModule_CallReplyArrayElement(map, i), field))
            return RedisModule_CallReplyArrayElement(map, i + 1);
    return NULL;
}

/* One value of DLOCK.INFO, of the lock or of its only holder, or NULL. */
static RedisModuleCallReply *info(test_run *run, const char *field) {
    RedisModuleCallReply *reply = RedisModule_Call(run->ctx, "DLOCK.INFO", "c", KEY);
    RedisModuleCallReply *value = field_of(reply, field);
    RedisModuleCallReply *holders = field_of(reply, "holders");
    if (value != NULL || length_of(holders) != 1) return value;
    return field_of(RedisModule_CallReplyArrayElement(holders, 0), field);
}

static bool is_free(test_run *run) {
    return is_null(RedisModule_Call(run->ctx, "DLOCK.INFO", "c", KEY)) &&
           integer_of(RedisModule_Call(run->ctx, "EXISTS", "c", KEY)) == 0;
}

/* Is about so much left of the lease, or of the TTL of a string? Give or take some seconds. */
static bool is_left_about(test_run *run, long long expected_ms) {
    long long left_ms = integer_of(info(run, "ttl"));
    return left_ms > expected_ms - 10000 && left_ms < expected_ms + 10000;
}

/* By the module API and not by a command. */
static bool has_ttl(test_run *run) {
    RedisModuleString *name = RedisModule_CreateString(run->ctx, KEY, strlen(KEY));
    RedisModuleKey *key = RedisModule_OpenKey(run->ctx, name, REDISMODULE_READ);
    long long ttl_ms = RedisModule_GetExpire(key);
    RedisModule_CloseKey(key);
    return ttl_ms != REDISMODULE_NO_EXPIRE;
}

static void wait_ms(long long duration_ms) {
    long long end_ms = RedisModule_Milliseconds() + duration_ms;
    while (RedisModule_Milliseconds() <= end_ms) {
    }
}

static void a_free_lock_is_granted_with_a_fence(test_run *run) {
    CHECK(run, is_free(run));
    long long fence = integer_of(acquire(run, "me", LEASE_MS));
    CHECK(run, fence > 0);
    CHECK_EQUAL(run, integer_of(info(run, "fence")), fence);
    CHECK(run, is_text(info(run, "token"), "me"));
    CHECK(run, is_text(info(run, "kind"), "lock"));
    CHECK_EQUAL(run, integer_of(info(run, "lease")), LEASE_MS);
    CHECK(run, is_text(RedisModule_Call(run->ctx, "TYPE", "c", KEY), "dlock-key"));
}

static void another_token_is_answered_null(test_run *run) {
    long long fence = integer_of(acquire(run, "me", LEASE_MS));
    CHECK(run, is_null(acquire(run, "you", LEASE_MS)));
    CHECK(run, is_text(info(run, "token"), "me"));
    CHECK_EQUAL(run, integer_of(info(run, "fence")), fence);
}

static void the_same_token_gets_the_same_fence(test_run *run) {
    long long fence = integer_of(acquire(run, "me", LEASE_MS));
    CHECK_EQUAL(run, integer_of(acquire(run, "me", LEASE_MS)), fence);
    CHECK_EQUAL(run, integer_of(acquire(run, "me", LONGER_MS)), fence);
    CHECK(run, is_left_about(run, LONGER_MS));
    CHECK_EQUAL(run, integer_of(acquire(run, "me", LEASE_MS)), fence);
    CHECK(run, is_left_about(run, LONGER_MS));
}

static void each_grant_has_a_higher_fence(test_run *run) {
    long long last = 0;
    for (int i = 0; i < 1000; i++) {
        long long fence = integer_of(acquire(run, "me", LEASE_MS));
        CHECK(run, fence > last);
        CHECK_EQUAL(run, integer_of(release(run, "me")), 1);
        last = fence;
    }
}

static void a_release_by_the_holder_frees_the_key(test_run *run) {
    acquire(run, "me", LEASE_MS);
    CHECK_EQUAL(run, integer_of(release(run, "me")), 1);
    CHECK(run, is_free(run));
    CHECK_EQUAL(run, integer_of(release(run, "me")), 0);
}

static void a_release_by_a_stranger_changes_nothing(test_run *run) {
    long long fence = integer_of(acquire(run, "me", LEASE_MS));
    CHECK_EQUAL(run, integer_of(release(run, "you")), 0);
    CHECK_EQUAL(run, integer_of(release(run, "my")), 0);
    CHECK_EQUAL(run, integer_of(release(run, "m")), 0);
    CHECK_EQUAL(run, integer_of(release(run, "mee")), 0);
    CHECK_EQUAL(run, integer_of(info(run, "fence")), fence);
}

static void an_extension_never_shortens(test_run *run) {
    CHECK_EQUAL(run, integer_of(extend(run, "me", LEASE_MS)), 0);
    CHECK(run, is_free(run));
    acquire(run, "me", LEASE_MS);
    CHECK_EQUAL(run, integer_of(extend(run, "you", LONGER_MS)), 0);
    CHECK(run, is_left_about(run, LEASE_MS));
    CHECK_EQUAL(run, integer_of(extend(run, "me", LONGER_MS)), 1);
    CHECK(run, is_left_about(run, LONGER_MS));
    CHECK_EQUAL(run, integer_of(extend(run, "me", SHORTER_MS)), 1);
    CHECK(run, is_left_about(run, LONGER_MS));
    CHECK(run, !has_ttl(run));
}

static void info_is_a_map_or_null(test_run *run) {
    CHECK(run, is_null(RedisModule_Call(run->ctx, "DLOCK.INFO", "c", KEY)));
    CHECK(run, is_null(RedisModule_Call(run->ctx, "DLOCK.INFO", "3c", KEY)));
    acquire(run, "me", LEASE_MS);
    RedisModuleCallReply *flat = RedisModule_Call(run->ctx, "DLOCK.INFO", "c", KEY);
    CHECK_EQUAL(run, type_of(flat), REDISMODULE_REPLY_ARRAY);
    CHECK_EQUAL(run, length_of(flat), 8);
    RedisModuleCallReply *map = RedisModule_Call(run->ctx, "DLOCK.INFO", "3c", KEY);
    CHECK_EQUAL(run, type_of(map), REDISMODULE_REPLY_MAP);
    CHECK_EQUAL(run, length_of(map), 4);
}

static void a_plain_string_is_somebody_s_lock(test_run *run) {
    RedisModule_Call(run->ctx, "SET", "cccl", KEY, "me", "PX", (long long)LEASE_MS);
    CHECK(run, is_null(acquire(run, "you", LEASE_MS)));
    CHECK(run, is_null(acquire(run, "me", LEASE_MS)));
    CHECK(run, is_text(info(run, "kind"), "string"));
    CHECK(run, is_text(info(run, "token"), "me"));
    CHECK_EQUAL(run, integer_of(release(run, "you")), 0);
    CHECK_EQUAL(run, integer_of(extend(run, "me", LONGER_MS)), 1);
    CHECK(run, is_left_about(run, LONGER_MS));
    CHECK_EQUAL(run, integer_of(release(run, "me")), 1);
    CHECK(run, is_free(run));
}

static void a_held_lock_stops_set_nx(test_run *run) {
    acquire(run, "me", LEASE_MS);
    CHECK(run, is_null(RedisModule_Call(run->ctx, "SET", "ccc", KEY, "you", "NX")));
    CHECK(run, is_text(info(run, "kind"), "lock"));
    CHECK(run, is_error(RedisModule_Call(run->ctx, "GET", "c", KEY), WRONG_TYPE));
}

static void any_other_type_is_the_wrong_one(test_run *run) {
    RedisModule_Call(run->ctx, "RPUSH", "cc", KEY, "me");
    CHECK(run, is_error(acquire(run, "me", LEASE_MS), WRONG_TYPE));
    CHECK(run, is_error(release(run, "me"), WRONG_TYPE));
    CHECK(run, is_error(extend(run, "me", LEASE_MS), WRONG_TYPE));
    CHECK(run, is_error(RedisModule_Call(run->ctx, "DLOCK.INFO", "c", KEY), WRONG_TYPE));
    CHECK_EQUAL(run, integer_of(RedisModule_Call(run->ctx, "LLEN", "c", KEY)), 1);
}

static void a_bad_call_is_one_error_and_changes_nothing(test_run *run) {
    CHECK(run, is_error(acquire(run, "", LEASE_MS), "ERR token"));
    CHECK(run, is_error(acquire(run, "me", 0), "ERR PX"));
    CHECK(run, is_error(acquire(run, "me", -1), "ERR PX"));
    CHECK(run, is_error(acquire(run, "me", LLONG_MAX), "ERR PX"));
    CHECK(run, is_error(extend(run, "me", 0), "ERR PX"));
    CHECK(run, is_error(release(run, ""), "ERR token"));
    RedisModuleCallReply *reply = RedisModule_Call(run->ctx, "DLOCK.ACQUIRE", "cc", KEY, "me");
    CHECK(run, is_error(reply, "ERR PX"));
    CHECK(run, is_free(run));
}

static void a_call_with_too_few_words_does_not_run(test_run *run) {
    errno = 0;
    CHECK(run, RedisModule_Call(run->ctx, "DLOCK.RELEASE", "c", KEY) == NULL);
    CHECK_EQUAL(run, errno, EINVAL);
    CHECK(run,
          is_error(RedisModule_Call(run->ctx, "DLOCK.RELEASE", "Ec", KEY), "ERR wrong number"));
}

static void a_caller_that_may_not_write_can_only_look(test_run *run) {
    RedisModuleCallReply *reply =
        RedisModule_Call(run->ctx, "DLOCK.ACQUIRE", "EWcccl", KEY, "me", "PX", (long long)LEASE_MS);
    CHECK_EQUAL(run, type_of(reply), REDISMODULE_REPLY_ERROR);
    reply = RedisModule_Call(run->ctx, "DLOCK.RELEASE", "EWcc", KEY, "me");
    CHECK_EQUAL(run, type_of(reply), REDISMODULE_REPLY_ERROR);
    CHECK(run, is_null(RedisModule_Call(run->ctx, "DLOCK.INFO", "EWc", KEY)));
}

/* For the core one command, this one, is one moment. For a lease it is not. */
static void a_lease_ends_also_within_one_command(test_run *run) {
    long long fence = integer_of(acquire(run, "me", 1));
    wait_ms(5);
    CHECK(run, is_null(RedisModule_Call(run->ctx, "DLOCK.INFO", "c", KEY)));
    CHECK_EQUAL(run, integer_of(release(run, "me")), 0);
    CHECK(run, integer_of(acquire(run, "you", LEASE_MS)) > fence);
    CHECK_EQUAL(run, integer_of(release(run, "you")), 1);
}

static void a_lock_whose_end_is_set_to_the_past_is_free(test_run *run) {
    long long fence = integer_of(acquire(run, "me", LEASE_MS));
    CHECK_EQUAL(run, integer_of(RedisModule_Call(run->ctx, "PEXPIREAT", "cl", KEY, 1LL)), 1);
    CHECK(run, is_free(run));
    CHECK(run, integer_of(acquire(run, "you", LEASE_MS)) > fence);
}

/* Whoever calls this reads in the replication stream that it was. */
static void a_call_is_replicated_when_the_caller_wants_it(test_run *run) {
    RedisModuleCallReply *reply =
        RedisModule_Call(run->ctx, "DLOCK.ACQUIRE", "!cccl", KEY, "me", "PX", (long long)LEASE_MS);
    CHECK(run, integer_of(reply) > 0);
    reply = RedisModule_Call(run->ctx, "DLOCK.RELEASE", "!cc", KEY, "me");
    CHECK_EQUAL(run, integer_of(reply), 1);
}

static void a_module_that_calls_does_not_wait(test_run *run) {
    acquire(run, "me", LEASE_MS);
    CHECK(run, is_null(RedisModule_Call(run->ctx, "DLOCK.ACQUIRE", "ccclcl", KEY, "you", "PX",
                                        (long long)LEASE_MS, "WAIT", (long long)LEASE_MS)));
    CHECK_EQUAL(run, integer_of(info(run, "waiters")), 0);
}

static void a_module_that_calls_has_no_session(test_run *run) {
    RedisModuleCallReply *reply = RedisModule_Call(run->ctx, "DLOCK.ACQUIRE", "ccclc", KEY, "me",
                                                   "PX", (long long)LEASE_MS, "SESSION");
    CHECK(run, is_error(reply, "ERR SESSION needs a connection"));
    CHECK(run, is_free(run));
}

static void a_failing_case_is_reported(test_run *run) {
    CHECK_EQUAL(run, integer_of(release(run, "me")), 1);
    CHECK(run, !is_free(run));
}

typedef struct test_case {
    const char *name;
    void (*function)(test_run *run);
} test_case;

#define CASE(function)                                                                             \
    { #function, function }

static const test_case cases[] = {
    CASE(a_free_lock_is_granted_with_a_fence),
    CASE(another_token_is_answered_null),
    CASE(the_same_token_gets_the_same_fence),
    CASE(each_grant_has_a_higher_fence),
    CASE(a_release_by_the_holder_frees_the_key),
    CASE(a_release_by_a_stranger_changes_nothing),
    CASE(an_extension_never_shortens),
    CASE(info_is_a_map_or_null),
    CASE(a_plain_string_is_somebody_s_lock),
    CASE(a_held_lock_stops_set_nx),
    CASE(any_other_type_is_the_wrong_one),
    CASE(a_bad_call_is_one_error_and_changes_nothing),
    CASE(a_call_with_too_few_words_does_not_run),
    CASE(a_caller_that_may_not_write_can_only_look),
    CASE(a_lease_ends_also_within_one_command),
    CASE(a_lock_whose_end_is_set_to_the_past_is_free),
    CASE(a_call_is_replicated_when_the_caller_wants_it),
    CASE(a_module_that_calls_does_not_wait),
    CASE(a_module_that_calls_has_no_session),
};
enum { CASE_COUNT = sizeof(cases) / sizeof(cases[0]) };

/* Not listed, but it can be asked for: the proof that a case can fail. */
static const test_case failing = CASE(a_failing_case_is_reported);

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
    test_run run = {.ctx = ctx};
    RedisModule_Call(ctx, "DEL", "c", KEY);
    test->function(&run);
    RedisModule_Call(ctx, "DEL", "c", KEY);
    if (run.failure[0] != '\0') return RedisModule_ReplyWithError(ctx, run.failure);
    return RedisModule_ReplyWithSimpleString(ctx, "PASS");
}

__attribute__((visibility("default"))) int RedisModule_OnLoad(RedisModuleCtx *ctx,
                                                              RedisModuleString **argv, int argc);

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    if (RedisModule_Init(ctx, "dlock_selftest", 1, REDISMODULE_APIVER_1) != REDISMODULE_OK)
        return REDISMODULE_ERR;
    return RedisModule_CreateCommand(ctx, "dlock.selftest", cmd_selftest, "write", 0, 0, 0);
}
