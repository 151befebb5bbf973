/* SPDX-License-Identifier: BSD-3-Clause */
/* args.c - the arguments of a command (module/args.c). The first byte chooses the command; the rest
 * are words, each ended by a newline. Every refusal sends one error, whose text cannot break the
 * framing of the reply; whatever is accepted sends none and is within the limits. */
#include "args.h"

#include "fence.h"
#include "fuzz.h"
#include "queues.h"
#include "sessions.h"
#include "settings.h"
#include <errno.h>

enum { WORDS_MAX = LOCK_NAMES_MAX + 24 };

settings_values settings = {.max_lease_ms = 86400000, .max_waiters = 10000, .max_holders = 1024};

struct RedisModuleString {
    char *bytes; /* of exactly this length */
    size_t length;
};

static int errors;

static const char *get_bytes(const RedisModuleString *string, size_t *length) {
    *length = string->length;
    return string->bytes;
}

/* As string2ll() of Redis: digits only, no leading zeros, no sign but a minus. */
static int get_number(const RedisModuleString *string, long long *number) {
    char digits[24], canonical[24];
    if (string->length == 0 || string->length >= sizeof(digits)) return REDISMODULE_ERR;
    memcpy(digits, string->bytes, string->length);
    digits[string->length] = '\0';
    errno = 0;
    *number = strtoll(digits, NULL, 10);
    snprintf(canonical, sizeof(canonical), "%lld", *number);
    bool is_number =
        errno == 0 && strlen(digits) == string->length && strcmp(digits, canonical) == 0;
    return is_number ? REDISMODULE_OK : REDISMODULE_ERR;
}

static int reply_error(RedisModuleCtx *ctx, const char *error) {
    (void)ctx;
    errors++;
    MUST(strncmp(error, "ERR ", 4) == 0 || strncmp(error, "NOSESSION ", 10) == 0);
    for (const char *next = error; *next != '\0'; next++)
        MUST(*next >= ' ' && *next <= '~');
    return REDISMODULE_OK;
}

static int wrong_arity(RedisModuleCtx *ctx) {
    return reply_error(ctx, "ERR wrong number of arguments");
}

/* Sessions whose id begins with 's' live, and are away if their second byte is 'a'. All users are
 * the same. */
static session living = {.state = SESSION_PRESENT, .timeout_ms = 1000};
static session away = {.state = SESSION_AWAY, .timeout_ms = 1000};

int64_t queues_pending_fences(void) {
    return 0;
}

session *sessions_find(const char *id, size_t length) {
    MUST(length >= SESSION_ID_MIN && length <= SESSION_ID_MAX);
    if (id[0] != 's') return NULL;
    return id[1] == 'a' ? &away : &living;
}

RedisModuleString *server_caller(RedisModuleCtx *ctx) {
    (void)ctx;
    return (RedisModuleString *)&living;
}

static int compare(RedisModuleString *one, RedisModuleString *other) {
    (void)one, (void)other;
    return 0;
}

static void free_string(RedisModuleCtx *ctx, RedisModuleString *string) {
    (void)ctx, (void)string;
}

static void check_token(lock_token token) {
    MUST(token.length >= 1 && token.length <= LOCK_TOKEN_MAX);
}

static bool parse_acquire(RedisModuleString **words, int count) {
    lock_request request;
    if (!args_parse_acquire_or_reply(NULL, words, count, &request)) return false;
    check_token(request.token);
    MUST(request.lease_ms >= 1 && request.lease_ms <= settings.max_lease_ms);
    MUST(request.wait_ms >= 0 && request.wait_ms <= 86400000);
    MUST(request.fence >= 0 && request.fence < LOCK_FENCE_LIMIT);
    MUST(request.max_holders == 0 || request.is_shared);
    bool is_kept = request.via != NULL && request.is_session;
    MUST(request.grace_ms == LOCK_NO_GRACE || (is_kept && request.via == &living));
    MUST(request.grace_ms >= LOCK_NO_GRACE && request.grace_ms <= 86400000);
    MUST(!is_kept || request.lease_ms <= request.via->timeout_ms);
    MUST(request.limit_ms == 0 || is_kept);
    return true;
}

static bool parse_extend(RedisModuleString **words, int count) {
    lock_request request;
    if (!args_parse_extend_or_reply(NULL, words, count, &request)) return false;
    check_token(request.token);
    MUST(request.lease_ms >= 1 && request.lease_ms <= settings.max_lease_ms);
    return true;
}

static bool parse_session(RedisModuleString **words, int count) {
    session_request request;
    if (count < 2) return reply_error(NULL, "ERR wrong number of arguments") != REDISMODULE_OK;
    if (!args_parse_session_or_reply(NULL, words, count, &request)) return false;
    MUST(request.id_length >= SESSION_ID_MIN && request.id_length <= SESSION_ID_MAX);
    MUST(request.is_end == (request.timeout_ms == 0));
    MUST(request.is_end || request.timeout_ms >= SESSION_TIMEOUT_MIN_MS);
    MUST(request.timeout_ms <= settings.max_lease_ms && request.acknowledged >= -1);
    return true;
}

static bool parse_apply(RedisModuleString **words, int count) {
    lock_state state;
    if (count < 3) return reply_error(NULL, "ERR wrong number of arguments") != REDISMODULE_OK;
    if (!args_parse_apply_or_reply(NULL, words, count, &state)) return false;
    check_token(state.token);
    MUST(state.fence >= 1 && state.fence < LOCK_FENCE_LIMIT);
    MUST(state.lease_ms >= 1 && state.lease_ms <= LOCK_LEASE_MAX_MS);
    return true;
}

/* "command count key [key ...]", and more. */
static bool parse_names(RedisModuleString **words, int count) {
    int names;
    if (!args_parse_names_or_reply(NULL, words, count, &names)) return false;
    MUST(names >= 1 && names <= LOCK_NAMES_MAX && names <= count - 3);
    for (int i = 0; i < names; i++)
        for (int j = 0; j < i; j++)
            MUST(words[2 + i]->length != words[2 + j]->length ||
                 memcmp(words[2 + i]->bytes, words[2 + j]->bytes, words[2 + i]->length) != 0);
    return true;
}

static bool parse(uint8_t which, RedisModuleString **words, int count) {
    int64_t shown;
    switch (which % 6) {
    case 0:
        return parse_acquire(words, count);
    case 1:
        return parse_extend(words, count);
    case 2:
        return parse_apply(words, count);
    case 3:
        return parse_session(words, count);
    case 5:
        return parse_names(words, count);
    default:
        if (!args_parse_info_or_reply(NULL, words, count, &shown)) return false;
        MUST(shown >= 0 && shown <= 10000);
        return true;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    RedisModuleString strings[WORDS_MAX], *words[WORDS_MAX];
    int count = 0;
    RedisModule_StringPtrLen = get_bytes;
    RedisModule_StringToLongLong = get_number;
    RedisModule_ReplyWithError = reply_error;
    RedisModule_WrongArity = wrong_arity;
    RedisModule_StringCompare = compare;
    RedisModule_FreeString = free_string;
    if (size < 2) return 0;
    for (size_t begin = 1; begin < size && count < WORDS_MAX; count++) {
        const uint8_t *mark = memchr(data + begin, '\n', size - begin);
        size_t length = mark == NULL ? size - begin : (size_t)(mark - data) - begin;
        strings[count] = (RedisModuleString){fuzz_copy(data + begin, length), length};
        words[count] = &strings[count];
        begin += length + 1;
    }
    errors = 0;
    bool is_accepted = parse(data[0], words, count);
    MUST(errors == (is_accepted ? 0 : 1));
    for (int i = 0; i < count; i++)
        free(strings[i].bytes);
    return 0;
}
