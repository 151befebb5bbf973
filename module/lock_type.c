/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_type.c - the callbacks Redis asks of a data type.
 *
 *   RDB       one string in the form of lock_codec.h; the core stores the TTL beside it
 *   AOF       one internal command that sets the state; the core emits the TTL after it
 *   digest    everything but the TTL, which the core adds
 *   aux data  the last fence, so that it grows across a restart with the clock set back
 *   COPY      no callback, so the core refuses it: a copied lock would be a second holder
 *
 * free may run in a background thread: it touches nothing but its value and an atomic count. */
#include "lock_type.h"

#include "deferred.h"
#include "fence.h"
#include "lock_codec.h"
#include "replicate.h"
#include "sessions.h"
#include "waiters.h"
#include "wall_clock.h"
#include <stddef.h>
#include <string.h>

enum { ENCODING_VERSION = 1 };
#define FENCE_KEPT_US (INT64_C(24) * 60 * 60 * 1000000) /* a day */

RedisModuleType *lock_type;
static int64_t value_count;

lock_value *lock_value_new(const lock_state *state) {
    lock_value *value = RedisModule_Alloc(offsetof(lock_value, token) + state->token.length);
    value->fence = state->fence;
    value->since_ms = state->since_ms;
    value->lease_ms = (uint32_t)state->lease_ms;
    value->token_length = (uint16_t)state->token.length;
    memcpy(value->token, state->token.bytes, state->token.length);
    __atomic_add_fetch(&value_count, 1, __ATOMIC_RELAXED);
    return value;
}

void lock_value_free(lock_value *value) {
    __atomic_sub_fetch(&value_count, 1, __ATOMIC_RELAXED);
    RedisModule_Free(value);
}

lock_state lock_value_state(const lock_value *value) {
    return (lock_state){
        .kind = LOCK_KIND_LOCK,
        .token = {value->token, value->token_length},
        .fence = value->fence,
        .since_ms = value->since_ms,
        .lease_ms = value->lease_ms,
        .expires_ms = LOCK_NO_EXPIRY,
    };
}

int64_t lock_value_count(void) {
    return __atomic_load_n(&value_count, __ATOMIC_RELAXED);
}

static void rdb_save(RedisModuleIO *rdb, void *value) {
    char bytes[LOCK_CODEC_SIZE_MAX];
    lock_state state = lock_value_state(value);
    RedisModule_SaveStringBuffer(rdb, bytes, lock_encode(&state, bytes));
}

/* NULL refuses the whole file or RESTORE: better no data than a lock nobody took. */
static void *rdb_load(RedisModuleIO *rdb, int encoding_version) {
    if (encoding_version != ENCODING_VERSION) {
        RedisModule_LogIOError(rdb, "warning", "a lock of encoding version %d, only %d is known",
                               encoding_version, ENCODING_VERSION);
        return NULL;
    }
    size_t size;
    char *bytes = RedisModule_LoadStringBuffer(rdb, &size);
    if (bytes == NULL) return NULL;

    lock_value *value = NULL;
    lock_state state;
    if (lock_decode(bytes, size, &state)) {
        value = lock_value_new(&state);
        fence_raise(state.fence);
    } else {
        RedisModule_LogIOError(rdb, "warning", "a corrupt lock of %zu bytes", size);
    }
    RedisModule_Free(bytes);
    return value;
}

static void aof_rewrite(RedisModuleIO *aof, RedisModuleString *key, void *value) {
    lock_state state = lock_value_state(value);
    replicate_emit_aof(aof, key, &state);
}

static void digest(RedisModuleDigest *md, void *data) {
    lock_value *value = data;
    RedisModule_DigestAddLongLong(md, value->fence);
    RedisModule_DigestAddLongLong(md, value->since_ms);
    RedisModule_DigestAddLongLong(md, value->lease_ms);
    RedisModule_DigestAddStringBuffer(md, value->token, value->token_length);
    RedisModule_DigestEndSequence(md);
}

static size_t mem_usage(const void *value) {
    return RedisModule_MallocSize((void *)value);
}

/* The key is no longer ours: deleted, expired, evicted, overwritten, renamed or moved. Who waits
 * for it may get it now. Fires for our own deletions as well; then nobody waits any more. */
static void unlinked(RedisModuleKeyOptCtx *ctx, const void *data) {
    const lock_value *value = data;
    sessions_forget(value->fence);
    if (waiters_total() == 0) return;
    const RedisModuleString *name = RedisModule_GetKeyNameFromOptCtx(ctx);
    int db = RedisModule_GetDbIdFromOptCtx(ctx);
    if (waiters_first(db, name) != NULL) deferred_settle_soon(db, name, 0);
}

static void free_value(void *value) {
    lock_value_free(value);
}

/* A file with this in it does not load without the module. So it is written only while it matters:
 * a grant of long ago would need a clock set back by as much to be reached again. */
static void aux_save(RedisModuleIO *rdb, int when) {
    (void)when;
    if (fence_last() > wall_clock_us() - FENCE_KEPT_US) RedisModule_SaveSigned(rdb, fence_last());
}

static int aux_load(RedisModuleIO *rdb, int encoding_version, int when) {
    (void)when;
    int64_t fence = RedisModule_LoadSigned(rdb);
    if (RedisModule_IsIOError(rdb)) return REDISMODULE_ERR;
    if (encoding_version != ENCODING_VERSION || fence < 1 || fence >= LOCK_FENCE_LIMIT) {
        RedisModule_LogIOError(rdb, "warning", "a corrupt last fence");
        return REDISMODULE_ERR;
    }
    fence_raise(fence);
    return REDISMODULE_OK;
}

/* Version 5 of the methods (7.2) is version 4 with one more field, which older servers do not
 * read. */
typedef struct type_methods_v5 {
    RedisModuleTypeMethods v4;
    RedisModuleTypeAuxSaveFunc aux_save2; /* as aux_save, but writes nothing when it says nothing */
} type_methods_v5;

int lock_type_register(RedisModuleCtx *ctx) {
    type_methods_v5 methods = {
        .v4 =
            {
                .version = REDISMODULE_TYPE_METHOD_VERSION + 1,
                .rdb_load = rdb_load,
                .rdb_save = rdb_save,
                .aof_rewrite = aof_rewrite,
                .mem_usage = mem_usage,
                .digest = digest,
                .free = free_value,
                .aux_load = aux_load,
                .aux_save_triggers = REDISMODULE_AUX_BEFORE_RDB,
                .unlink2 = unlinked,
            },
        .aux_save2 = aux_save,
    };
    lock_type = RedisModule_CreateDataType(ctx, "dlock-key", ENCODING_VERSION,
                                           (RedisModuleTypeMethods *)&methods);
    return lock_type == NULL ? REDISMODULE_ERR : REDISMODULE_OK;
}
