/* SPDX-License-Identifier: BSD-3-Clause */
/* replicate.c - see replicate.h.
 *
 * On every call, RedisModule_Replicate() looks the command up by name and builds an argument
 * vector: a quarter of the cost of an uncontended acquire, even without replicas and AOF.
 * ReplicateVerbatim() only takes references to the arguments of the running command.
 * "DLOCK.ACQUIRE key token PX lease" has as many arguments as "DLOCK.APPLY key token fence
 * lease", and so has EXTEND. So the module exchanges two of the arguments for the duration of
 * the call. DLOCK.ACQUIREALL and DLOCK.APPLYALL correspond in the same way. Any other form of the
 * command goes through RedisModule_Replicate(). */
#include "replicate.h"

#include <string.h>

/* Without the names and their count. */
enum { WORD_COMMAND = 0, WORD_FENCE = 2, WORD_COUNT = 4 };

#define WORD_SHARED "SHARED"

static RedisModuleString *command_name, *all_command_name;

void replicate_init(void) {
    command_name = RedisModule_CreateString(NULL, REPLICATE_COMMAND, strlen(REPLICATE_COMMAND));
    all_command_name =
        RedisModule_CreateString(NULL, REPLICATE_ALL_COMMAND, strlen(REPLICATE_ALL_COMMAND));
}

/* key_words: how many words are about the keys. */
static ALWAYS_INLINE void replicate_in_place(RedisModuleCtx *ctx, RedisModuleString **argv,
                                             RedisModuleString *command, int key_words,
                                             int64_t fence) {
    RedisModuleString *own_command = argv[WORD_COMMAND], *own_word = argv[key_words + WORD_FENCE];
    RedisModuleString *word = RedisModule_CreateStringFromLongLong(NULL, fence);
    argv[WORD_COMMAND] = command;
    argv[key_words + WORD_FENCE] = word;
    RedisModule_ReplicateVerbatim(ctx);
    argv[WORD_COMMAND] = own_command;
    argv[key_words + WORD_FENCE] = own_word;
    RedisModule_FreeString(NULL, word);
}

void replicate_state(RedisModuleCtx *ctx, RedisModuleString **argv, int argc,
                     RedisModuleString *name, const lock_state *state) {
    if (state->is_shared)
        RedisModule_Replicate(ctx, REPLICATE_COMMAND, "sbllc", name, state->token.bytes,
                              state->token.length, (long long)state->fence,
                              (long long)state->lease_ms, WORD_SHARED);
    else if (argv != NULL && argc == WORD_COUNT + 1)
        replicate_in_place(ctx, argv, command_name, 1, state->fence);
    else
        RedisModule_Replicate(ctx, REPLICATE_COMMAND, "sbll", name, state->token.bytes,
                              state->token.length, (long long)state->fence,
                              (long long)state->lease_ms);
}

void replicate_states(RedisModuleCtx *ctx, RedisModuleString **argv, int argc,
                      RedisModuleString **names, int count, const lock_state *state) {
    if (state->is_shared)
        RedisModule_Replicate(ctx, REPLICATE_ALL_COMMAND, "lvbllc", (long long)count, names,
                              (size_t)count, state->token.bytes, state->token.length,
                              (long long)state->fence, (long long)state->lease_ms, WORD_SHARED);
    else if (argv != NULL && argc == WORD_COUNT + 1 + count)
        replicate_in_place(ctx, argv, all_command_name, 1 + count, state->fence);
    else
        RedisModule_Replicate(ctx, REPLICATE_ALL_COMMAND, "lvbll", (long long)count, names,
                              (size_t)count, state->token.bytes, state->token.length,
                              (long long)state->fence, (long long)state->lease_ms);
}

void replicate_command(RedisModuleCtx *ctx) {
    RedisModule_ReplicateVerbatim(ctx);
}

void replicate_release(RedisModuleCtx *ctx, RedisModuleString *name, lock_token token) {
    RedisModule_Replicate(ctx, "dlock.release", "sb", name, token.bytes, token.length);
}

/* If an operator has renamed PEXPIREAT, the running command itself is replicated: a replica then
 * counts from the arrival of the command, so the TTL is no shorter. */
void replicate_string_expiry(RedisModuleCtx *ctx, RedisModuleString *name, int64_t expires_ms) {
    if (RedisModule_Replicate(ctx, "PEXPIREAT", "sl", name, (long long)expires_ms) !=
        REDISMODULE_OK)
        replicate_command(ctx);
}

void replicate_clock(RedisModuleCtx *ctx, int64_t base_us, int64_t clock_us) {
    RedisModule_Replicate(ctx, REPLICATE_CLOCK_COMMAND, "ll", (long long)base_us,
                          (long long)clock_us);
}

void replicate_emit_aof(RedisModuleIO *aof, RedisModuleString *name, const lock_state *state) {
    if (state->is_shared)
        RedisModule_EmitAOF(aof, REPLICATE_COMMAND, "sbllc", name, state->token.bytes,
                            state->token.length, (long long)state->fence,
                            (long long)state->lease_ms, WORD_SHARED);
    else
        RedisModule_EmitAOF(aof, REPLICATE_COMMAND, "sbll", name, state->token.bytes,
                            state->token.length, (long long)state->fence,
                            (long long)state->lease_ms);
}
