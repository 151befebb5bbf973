/* SPDX-License-Identifier: BSD-3-Clause */
/* args.c - see args.h.
 *
 *   parse_word      an argument that must be a number within limits
 *   parse_number    the number after an option: PX, WAIT, MAX, FENCE, WAITERS
 *   args_parse_*    one function for each command, with a loop over its options
 *
 * Options come in any order and any case, each at most once. Only fail() sends errors. To add an
 * option: a field of lock_request, a parse function, and a branch in the loop of the command. */
#include "args.h"

#include "fence.h"
#include "server.h"
#include "settings.h"
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

enum {
    SHOWN_MAX = 32,
    ERROR_MAX = 160,
    WAIT_MAX_MS = 24 * 60 * 60 * 1000,
    WAITERS_MAX = 10000,
};

static bool fail(RedisModuleCtx *ctx, const char *format, ...) {
    char text[ERROR_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    RedisModule_ReplyWithError(ctx, text);
    return false;
}

/* The start of an argument, with '?' for every byte except visible ASCII: the text cannot break
 * the framing of an error reply. */
static const char *shown(RedisModuleString *word, char out[SHOWN_MAX + 1]) {
    size_t length;
    const char *bytes = RedisModule_StringPtrLen(word, &length);
    if (length > SHOWN_MAX) length = SHOWN_MAX;
    for (size_t i = 0; i < length; i++)
        out[i] = (char)(bytes[i] > ' ' && bytes[i] <= '~' ? bytes[i] : '?');
    out[length] = '\0';
    return out;
}

static bool is_word(RedisModuleString *word, const char *option, size_t option_length) {
    size_t length;
    const char *bytes = RedisModule_StringPtrLen(word, &length);
    return length == option_length && strncasecmp(bytes, option, length) == 0;
}

bool args_parse_token_or_reply(RedisModuleCtx *ctx, RedisModuleString *word, lock_token *token) {
    token->bytes = RedisModule_StringPtrLen(word, &token->length);
    if (token->length >= 1 && token->length <= LOCK_TOKEN_MAX) return true;
    return fail(ctx, "ERR token must have 1 to %d bytes, not %zu", LOCK_TOKEN_MAX, token->length);
}

/* Parses an argument as a number from 1 to max. hint tells the client where max comes from. */
static bool parse_word_or_reply(RedisModuleCtx *ctx, RedisModuleString *word, const char *what,
                                int64_t max, const char *hint, int64_t *value) {
    long long number;
    if (RedisModule_StringToLongLong(word, &number) != REDISMODULE_OK || number < 1 || number > max)
        return fail(ctx, "ERR %s must be an integer from 1 to %lld (%s)", what, (long long)max,
                    hint);
    *value = number;
    return true;
}

/* Parses the number after the option words[i]. */
static bool parse_number_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count, int i,
                                  const char *option, const char *unit, int64_t max,
                                  const char *hint, int64_t *value) {
    if (*value != 0) return fail(ctx, "ERR %s is given twice", option);
    if (i + 1 == count) return fail(ctx, "ERR %s needs a value%s", option, unit);
    return parse_word_or_reply(ctx, words[i + 1], option, max, hint, value);
}

static bool parse_px_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count, int i,
                              lock_request *request) {
    return parse_number_or_reply(ctx, words, count, i, "PX", ", in milliseconds",
                                 settings.max_lease_ms, "dlock.max-lease", &request->lease_ms);
}

static bool parse_wait_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count, int i,
                                lock_request *request) {
    return parse_number_or_reply(ctx, words, count, i, "WAIT", ", in milliseconds", WAIT_MAX_MS,
                                 "one day", &request->wait_ms);
}

static bool parse_fence_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count, int i,
                                 lock_request *request) {
    if (!parse_number_or_reply(ctx, words, count, i, "FENCE", "", FENCE_RAISE_LIMIT - 1, "2^61 - 1",
                               &request->fence))
        return false;
    fence_time now = {.wall_us = server_wall_us(), .boot_us = server_boot_us()};
    return fence_may_ask_for(request->fence, now) ||
           fail(ctx, "ERR FENCE must not be more than %d minutes ahead of the server's clock",
                (int)(FENCE_AHEAD_MAX_US / 60000000));
}

static bool parse_max_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count, int i,
                               lock_request *request) {
    return parse_number_or_reply(ctx, words, count, i, "MAX", ", a number of holders", INT32_MAX,
                                 "2^31 - 1", &request->max_holders);
}

static bool parse_flag_or_reply(RedisModuleCtx *ctx, const char *option, bool *flag) {
    if (*flag) return fail(ctx, "ERR %s is given twice", option);
    *flag = true;
    return true;
}

static bool unknown(RedisModuleCtx *ctx, RedisModuleString *word) {
    char buffer[SHOWN_MAX + 1];
    return fail(ctx, "ERR unknown option '%s'", shown(word, buffer));
}

static bool has_lease_or_reply(RedisModuleCtx *ctx, const lock_request *request) {
    return request->lease_ms != 0 ||
           fail(ctx, "ERR PX is missing: PX and the lease in milliseconds");
}

bool args_parse_acquire_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                                 lock_request *request) {
    *request = (lock_request){.lease_ms = 0};
    if (!args_parse_token_or_reply(ctx, words[0], &request->token)) return false;
    for (int i = 1; i < count; i++) {
        if (is_word(words[i], "PX", 2)) {
            if (!parse_px_or_reply(ctx, words, count, i++, request)) return false;
        } else if (is_word(words[i], "WAIT", 4)) {
            if (!parse_wait_or_reply(ctx, words, count, i++, request)) return false;
        } else if (is_word(words[i], "FENCE", 5)) {
            if (!parse_fence_or_reply(ctx, words, count, i++, request)) return false;
        } else if (is_word(words[i], "SESSION", 7)) {
            if (!parse_flag_or_reply(ctx, "SESSION", &request->is_session)) return false;
        } else if (is_word(words[i], "SHARED", 6)) {
            if (!parse_flag_or_reply(ctx, "SHARED", &request->is_shared)) return false;
        } else if (is_word(words[i], "MAX", 3)) {
            if (!parse_max_or_reply(ctx, words, count, i++, request)) return false;
        } else {
            return unknown(ctx, words[i]);
        }
    }
    if (request->max_holders > 0 && !request->is_shared)
        return fail(ctx, "ERR MAX needs SHARED: an exclusive lock has one holder");
    return has_lease_or_reply(ctx, request);
}

bool args_parse_extend_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                                lock_request *request) {
    *request = (lock_request){.lease_ms = 0};
    if (!args_parse_token_or_reply(ctx, words[0], &request->token)) return false;
    for (int i = 1; i < count; i += 2) {
        if (!is_word(words[i], "PX", 2)) return unknown(ctx, words[i]);
        if (!parse_px_or_reply(ctx, words, count, i, request)) return false;
    }
    return has_lease_or_reply(ctx, request);
}

bool args_parse_info_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                              int64_t *waiters_shown) {
    *waiters_shown = 0;
    for (int i = 0; i < count; i += 2) {
        if (!is_word(words[i], "WAITERS", 7)) return unknown(ctx, words[i]);
        if (!parse_number_or_reply(ctx, words, count, i, "WAITERS", "", WAITERS_MAX,
                                   "how many are shown", waiters_shown))
            return false;
    }
    return true;
}

bool args_parse_apply_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                               lock_state *state) {
    *state = (lock_state){.kind = LOCK_KIND_LOCK, .is_shared = count > 3};
    if (count > 3 && (count > 4 || !is_word(words[3], "SHARED", 6)))
        return unknown(ctx, words[count - 1]);
    return args_parse_token_or_reply(ctx, words[0], &state->token) &&
           parse_word_or_reply(ctx, words[1], "fence", LOCK_FENCE_LIMIT - 1, "2^62 - 1",
                               &state->fence) &&
           parse_word_or_reply(ctx, words[2], "lease-ms", LOCK_LEASE_MAX_MS, "2^32 - 1",
                               &state->lease_ms);
}
