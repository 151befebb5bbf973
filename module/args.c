/* SPDX-License-Identifier: BSD-3-Clause */
/* args.c - see args.h. Options come in any order and any case, each at most once. */
#include "args.h"

#include "lock_codec.h"
#include "settings.h"
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

enum { SHOWN_MAX = 32, ERROR_MAX = 160 };

static bool fail(RedisModuleCtx *ctx, const char *format, ...) {
    char text[ERROR_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    RedisModule_ReplyWithError(ctx, text);
    return false;
}

/* The start of a word with nothing in it that could break the framing of an error reply. */
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

static bool parse_lease_or_reply(RedisModuleCtx *ctx, RedisModuleString *word, int64_t *lease_ms) {
    long long value;
    if (RedisModule_StringToLongLong(word, &value) == REDISMODULE_OK && value >= 1 &&
        value <= settings.max_lease_ms) {
        *lease_ms = value;
        return true;
    }
    return fail(ctx, "ERR PX must be an integer from 1 to %lld (dlock.max-lease)",
                settings.max_lease_ms);
}

bool args_parse_request_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                                 lock_request *request) {
    *request = (lock_request){.lease_ms = 0};
    if (!args_parse_token_or_reply(ctx, words[0], &request->token)) return false;
    for (int i = 1; i < count; i += 2) {
        char buffer[SHOWN_MAX + 1];
        if (!is_word(words[i], "PX", 2))
            return fail(ctx, "ERR unknown option '%s'", shown(words[i], buffer));
        if (request->lease_ms != 0) return fail(ctx, "ERR PX is given twice");
        if (i + 1 == count) return fail(ctx, "ERR PX needs a value, the lease in milliseconds");
        if (!parse_lease_or_reply(ctx, words[i + 1], &request->lease_ms)) return false;
    }
    if (request->lease_ms == 0)
        return fail(ctx, "ERR PX is missing: PX and the lease in milliseconds");
    return true;
}

bool args_parse_state_or_reply(RedisModuleCtx *ctx, RedisModuleString *word, lock_state *state) {
    size_t size;
    const char *bytes = RedisModule_StringPtrLen(word, &size);
    return lock_decode(bytes, size, state) || fail(ctx, "ERR state is not one that dlock wrote");
}
