/* SPDX-License-Identifier: BSD-3-Clause */
/* replicate.c - see replicate.h.
 *
 * RedisModule_Replicate() looks the command up by its name and builds an argument vector, every
 * time: a quarter of the cost of an uncontended acquire, even when nobody listens.
 * ReplicateVerbatim() only takes references to the words of the running command. So within a
 * command we lend it other words for the time of that call: ours in front, the rest of the
 * client's behind, where DLOCK.APPLY ignores them. A server that looked at the words later than
 * that would pass on the client's own command, which makes the same token the holder, by the
 * receiver's clock. None does: the tests read the stream. */
#include "replicate.h"

#include "lock_codec.h"
#include <string.h>

static RedisModuleString *command_name;

void replicate_init(void) {
    command_name = RedisModule_CreateString(NULL, REPLICATE_COMMAND, strlen(REPLICATE_COMMAND));
}

static void replicate_as(RedisModuleCtx *ctx, RedisModuleString **argv, RedisModuleString *state) {
    enum { NAME = 0, STATE = 2 };
    RedisModuleString *own_name = argv[NAME], *own_word = argv[STATE];
    argv[NAME] = command_name;
    argv[STATE] = state;
    RedisModule_ReplicateVerbatim(ctx);
    argv[NAME] = own_name;
    argv[STATE] = own_word;
}

void replicate_state(RedisModuleCtx *ctx, RedisModuleString **argv, RedisModuleString *name,
                     const lock_state *state) {
    char bytes[LOCK_CODEC_SIZE_MAX];
    size_t size = lock_encode(state, bytes);
    if (argv == NULL) {
        RedisModule_Replicate(ctx, REPLICATE_COMMAND, "sb", name, bytes, size);
        return;
    }
    RedisModuleString *word = RedisModule_CreateString(NULL, bytes, size);
    replicate_as(ctx, argv, word);
    RedisModule_FreeString(NULL, word);
}

void replicate_command(RedisModuleCtx *ctx) {
    RedisModule_ReplicateVerbatim(ctx);
}

void replicate_release(RedisModuleCtx *ctx, RedisModuleString *name, lock_token token) {
    RedisModule_Replicate(ctx, "dlock.release", "sb", name, token.bytes, token.length);
}

void replicate_string_expiry(RedisModuleCtx *ctx, RedisModuleString *name, int64_t expires_ms) {
    RedisModule_Replicate(ctx, "PEXPIREAT", "sl", name, (long long)expires_ms);
}

void replicate_emit_aof(RedisModuleIO *aof, RedisModuleString *name, const lock_state *state) {
    char bytes[LOCK_CODEC_SIZE_MAX];
    lock_state without_expiry = *state;
    without_expiry.expires_ms = LOCK_NO_EXPIRY;
    size_t size = lock_encode(&without_expiry, bytes);
    RedisModule_EmitAOF(aof, REPLICATE_COMMAND, "sb", name, bytes, size);
}
