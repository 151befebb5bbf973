/* SPDX-License-Identifier: BSD-3-Clause */
/* replicate.c - see replicate.h. */
#include "replicate.h"

#include "lock_codec.h"

void replicate_state(RedisModuleCtx *ctx, RedisModuleString *name, const lock_state *state) {
    char bytes[LOCK_CODEC_SIZE_MAX];
    size_t size = lock_encode(state, bytes);
    RedisModule_Replicate(ctx, REPLICATE_COMMAND, "sb", name, bytes, size);
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
