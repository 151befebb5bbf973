/* SPDX-License-Identifier: BSD-3-Clause */
/* args.c - see args.h.
 *
 *   parse_word      an argument that must be a number within limits
 *   parse_number    the number after an option: PX, WAIT, MAX, FENCE, FENCES, ACK, WAITERS
 *   args_parse_*    one function for each command, with a loop over its options
 *
 * Options come in any order and any case, each at most once. Only fail() sends errors. To add an
 * option: a field of lock_request, a parse function, and a branch in the loop of the command. */
#include "args.h"

#include "fences.h"
#include "queues.h"
#include "server.h"
#include "sessions.h"
#include "settings.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    SHOWN_MAX = 32,
    ERROR_MAX = 160,
    DAY_MS = 24 * 60 * 60 * 1000,
    WAITERS_MAX = 10000,
    OPTION_MISSING = LOCK_NO_GRACE,
    FENCES_MAX = 10000,
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

static int compare_names(const void *one, const void *other) {
    size_t length, other_length;
    const char *bytes = RedisModule_StringPtrLen(*(RedisModuleString *const *)one, &length);
    const char *other_bytes =
        RedisModule_StringPtrLen(*(RedisModuleString *const *)other, &other_length);
    if (length != other_length) return length < other_length ? -1 : 1;
    return memcmp(bytes, other_bytes, length);
}

/* A name that is given twice, or NULL. The names are sorted, because they can be very long: to
 * compare each with each would read every name up to 63 times. */
static RedisModuleString *find_twice(RedisModuleString **names, size_t count) {
    RedisModuleString *sorted[LOCK_NAMES_MAX];
    memcpy(sorted, names, count * sizeof(names[0]));
    qsort(sorted, count, sizeof(sorted[0]), compare_names);
    for (size_t i = 1; i < count; i++)
        if (compare_names(&sorted[i - 1], &sorted[i]) == 0) return sorted[i];
    return NULL;
}

bool args_parse_names_or_reply(RedisModuleCtx *ctx, RedisModuleString **argv, int argc,
                               int *name_count) {
    char buffer[SHOWN_MAX + 1];
    int64_t count;
    if (argc < 4) { /* a file is loaded without this check */
        RedisModule_WrongArity(ctx);
        return false;
    }
    if (!parse_word_or_reply(ctx, argv[1], "count", LOCK_NAMES_MAX, "how many names follow",
                             &count))
        return false;
    if (count > argc - 3)
        return fail(ctx, "ERR count is %d, but only %d words follow: the names and the token",
                    (int)count, argc - 2);
    RedisModuleString *twice = find_twice(argv + 2, (size_t)count);
    if (twice != NULL) return fail(ctx, "ERR the name '%s' is given twice", shown(twice, buffer));
    *name_count = (int)count;
    return true;
}

static bool parse_px_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count, int i,
                              int64_t *px_ms) {
    return parse_number_or_reply(ctx, words, count, i, "PX", ", in milliseconds",
                                 settings.max_lease_ms, "dlock.max-lease", px_ms);
}

static bool parse_fence_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count, int i,
                                 int64_t *fence) {
    if (!parse_number_or_reply(ctx, words, count, i, "FENCE", "", LOCK_FENCE_LIMIT - 1, "2^53 - 1",
                               fence))
        return false;
    fence_time now = {.wall_us = server_wall_us(), .boot_us = server_boot_us()};
    return fence_may_ask_for(*fence, now) ||
           fail(ctx, "ERR FENCE must not be more than %d minutes ahead of the server's clock",
                (int)(FENCE_LEAD_MAX_US / 60000000));
}

static bool may_reserve(int64_t fence, int64_t fences) {
    fence_time now = {.wall_us = server_wall_us(), .boot_us = server_boot_us()};
    return fence_may_reserve(fence, fences, queues_pending_fences(), now);
}

/* The same for an option whose number may be 0. *value is OPTION_MISSING before. */
static bool parse_number_from_0_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                                         int i, const char *option, const char *unit, int64_t max,
                                         const char *hint, int64_t *value) {
    long long number;
    if (*value != OPTION_MISSING) return fail(ctx, "ERR %s is given twice", option);
    if (i + 1 == count) return fail(ctx, "ERR %s needs a value%s", option, unit);
    if (RedisModule_StringToLongLong(words[i + 1], &number) != REDISMODULE_OK || number < 0 ||
        number > max)
        return fail(ctx, "ERR %s must be an integer from 0 to %lld (%s)", option, (long long)max,
                    hint);
    *value = number;
    return true;
}

static bool parse_via_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count, int i,
                               RedisModuleString **via) {
    if (*via != NULL) return fail(ctx, "ERR VIA is given twice");
    if (i + 1 == count) return fail(ctx, "ERR VIA needs the id of a session");
    *via = words[i + 1];
    return args_check_session_id_or_reply(ctx, *via);
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

bool args_check_session_id_or_reply(RedisModuleCtx *ctx, RedisModuleString *id) {
    size_t length;
    RedisModule_StringPtrLen(id, &length);
    return (length >= SESSION_ID_MIN && length <= SESSION_ID_MAX) ||
           fail(ctx, "ERR the id of a session must have %d to %d bytes, not %zu", SESSION_ID_MIN,
                SESSION_ID_MAX, length);
}

session *args_find_session_or_reply(RedisModuleCtx *ctx, RedisModuleString *id) {
    size_t length;
    const char *bytes = RedisModule_StringPtrLen(id, &length);
    session *found = sessions_find(bytes, length);
    RedisModuleString *user = found == NULL ? NULL : server_caller(ctx);
    if (user != NULL && RedisModule_StringCompare(user, found->user) != 0) found = NULL;
    if (user != NULL) RedisModule_FreeString(ctx, user);
    if (found == NULL) fail(ctx, SESSION_NONE);
    return found;
}

static bool lacks_lease(RedisModuleCtx *ctx) {
    return fail(ctx, "ERR PX is missing: PX and the lease in milliseconds");
}

/* The options of ACQUIRE as they stand in the command; 0 or NULL: not given. */
typedef struct acquire_words {
    int64_t px_ms, wait_ms, fence, fences, max, grace_ms;
    RedisModuleString *via;
    bool is_session, is_shared;
} acquire_words;

static bool parse_acquire_words_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                                         acquire_words *given) {
    *given = (acquire_words){.grace_ms = LOCK_NO_GRACE};
    for (int i = 1; i < count; i++) {
        bool is_good;
        if (is_word(words[i], "PX", 2))
            is_good = parse_px_or_reply(ctx, words, count, i++, &given->px_ms);
        else if (is_word(words[i], "WAIT", 4))
            is_good = parse_number_or_reply(ctx, words, count, i++, "WAIT", ", in milliseconds",
                                            DAY_MS, "one day", &given->wait_ms);
        else if (is_word(words[i], "VIA", 3))
            is_good = parse_via_or_reply(ctx, words, count, i++, &given->via);
        else if (is_word(words[i], "SESSION", 7))
            is_good = parse_flag_or_reply(ctx, "SESSION", &given->is_session);
        else if (is_word(words[i], "GRACE", 5))
            is_good =
                parse_number_from_0_or_reply(ctx, words, count, i++, "GRACE", ", in milliseconds",
                                             DAY_MS, "one day", &given->grace_ms);
        else if (is_word(words[i], "SHARED", 6))
            is_good = parse_flag_or_reply(ctx, "SHARED", &given->is_shared);
        else if (is_word(words[i], "MAX", 3))
            is_good = parse_number_or_reply(ctx, words, count, i++, "MAX", ", a number of holders",
                                            INT32_MAX, "2^31 - 1", &given->max);
        else if (is_word(words[i], "FENCE", 5))
            is_good = parse_fence_or_reply(ctx, words, count, i++, &given->fence);
        else if (is_word(words[i], "FENCES", 6))
            is_good =
                parse_number_or_reply(ctx, words, count, i++, "FENCES", ", a number of fences",
                                      FENCES_MAX, "the longest run", &given->fences);
        else
            is_good = unknown(ctx, words[i]);
        if (!is_good) return false;
    }
    if (given->max > 0 && !given->is_shared)
        return fail(ctx, "ERR MAX needs SHARED: an exclusive lock has one holder");
    if (given->fences > 0 && !may_reserve(given->fence, given->fences))
        return fail(ctx, FENCES_USED_UP);
    bool is_kept = given->via != NULL && given->is_session;
    if (given->grace_ms != LOCK_NO_GRACE && !is_kept)
        return fail(ctx, "ERR GRACE needs VIA and SESSION: it is about the end of a session");
    return given->px_ms != 0 || is_kept || lacks_lease(ctx);
}

/* A hold of a session is stored with a lease as long as the timeout of the session, or shorter: a
 * server that takes over does not know the session. */
static void set_session(lock_request *request, session *via, int64_t px_ms) {
    request->via = via;
    if (!request->is_session) return;
    request->limit_ms = (uint32_t)px_ms;
    if (px_ms == 0 || px_ms > via->timeout_ms) request->lease_ms = via->timeout_ms;
}

bool args_parse_acquire_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                                 lock_request *request) {
    acquire_words given;
    lock_token token;
    if (!args_parse_token_or_reply(ctx, words[0], &token)) return false;
    if (!parse_acquire_words_or_reply(ctx, words, count, &given)) return false;
    *request = (lock_request){
        .token = token,
        .lease_ms = given.px_ms,
        .fence = given.fence,
        .fences = (int32_t)given.fences,
        .wait_ms = (uint32_t)given.wait_ms,
        .max_holders = (int32_t)given.max,
        .grace_ms = (int32_t)given.grace_ms,
        .is_session = given.is_session,
        .is_shared = given.is_shared,
    };
    if (given.via == NULL) return true;
    session *via = args_find_session_or_reply(ctx, given.via);
    if (via == NULL) return false;
    if (given.grace_ms != LOCK_NO_GRACE && !session_is_present(via))
        return fail(ctx, "NOSESSION the session is away: open it again before asking for a lock "
                         "with GRACE");
    set_session(request, via, given.px_ms);
    return true;
}

/* The timeout of a session that is open stays good when dlock.max-lease becomes smaller: without
 * further heartbeats all locks of the session would be lost. */
static int64_t longest_timeout(const session_request *request) {
    const session *found = sessions_find(request->id, request->id_length);
    bool is_longer = found != NULL && found->timeout_ms > settings.max_lease_ms;
    return is_longer ? found->timeout_ms : settings.max_lease_ms;
}

bool args_parse_session_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                                 session_request *request) {
    *request = (session_request){.acknowledged = OPTION_MISSING};
    if (!args_check_session_id_or_reply(ctx, words[0])) return false;
    request->id = RedisModule_StringPtrLen(words[0], &request->id_length);
    request->is_end = count == 2 && is_word(words[1], "END", 3);
    if (request->is_end) return true;
    for (int i = 1; i < count; i += 2) {
        if (is_word(words[i], "PX", 2)) {
            if (!parse_number_or_reply(ctx, words, count, i, "PX", ", in milliseconds",
                                       longest_timeout(request), "dlock.max-lease",
                                       &request->timeout_ms))
                return false;
        } else if (is_word(words[i], "ACK", 3)) {
            if (!parse_number_from_0_or_reply(ctx, words, count, i, "ACK",
                                              ", the number of an event", INT64_MAX, "2^63 - 1",
                                              &request->acknowledged))
                return false;
        } else {
            return unknown(ctx, words[i]);
        }
    }
    if (request->timeout_ms == 0)
        return fail(ctx, "ERR PX is missing: PX and the timeout in milliseconds, or END");
    return request->timeout_ms >= SESSION_TIMEOUT_MIN_MS ||
           fail(ctx, "ERR PX must be at least %d: the timeout of a session",
                SESSION_TIMEOUT_MIN_MS);
}

bool args_parse_extend_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int count,
                                lock_request *request) {
    *request = (lock_request){.lease_ms = 0};
    if (!args_parse_token_or_reply(ctx, words[0], &request->token)) return false;
    for (int i = 1; i < count; i += 2) {
        if (!is_word(words[i], "PX", 2)) return unknown(ctx, words[i]);
        if (!parse_px_or_reply(ctx, words, count, i, &request->lease_ms)) return false;
    }
    return request->lease_ms != 0 || lacks_lease(ctx);
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
           parse_word_or_reply(ctx, words[1], "fence", LOCK_FENCE_LIMIT - 1, "2^53 - 1",
                               &state->fence) &&
           parse_word_or_reply(ctx, words[2], "lease-ms", LOCK_LEASE_MAX_MS, "2^32 - 1",
                               &state->lease_ms);
}

bool args_parse_clock_or_reply(RedisModuleCtx *ctx, RedisModuleString **words, int64_t *base_us,
                               int64_t *clock_us) {
    return parse_word_or_reply(ctx, words[0], "base-us", LOCK_FENCE_LIMIT - 1, "2^53 - 1",
                               base_us) &&
           parse_word_or_reply(ctx, words[1], "clock-us", LOCK_FENCE_LIMIT - 1, "2^53 - 1",
                               clock_us);
}
