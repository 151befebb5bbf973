/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_type.c - the callbacks of the data type.
 *
 *   RDB       the number of holders, and for each a string in the form of lock_codec.h; a loaded
 *             lock starts its leases again
 *   AOF       one internal command for each holder, which sets its state
 *   digest    the state common to master and replica: without the start of the lease
 *   aux data  the clock of fences (fence.h), so that fences grow across a restart with the wall
 *             clock set back
 *   COPY      no callback, so the core refuses COPY: a copied lock would be a second holder
 *   unlink    a key has lost its lock, by a DLOCK command or by any other command */
#include "lock_type.h"

#include "fences.h"
#include "leases.h"
#include "lock_codec.h"
#include "lock_value.h"
#include "queues.h"
#include "replicate.h"
#include "server.h"
#include "settings.h"
#include "stats.h"
#include "strays.h"
#include "watches.h"

enum { ENCODING_VERSION = 2 };
#define FENCE_KEPT_US (INT64_C(24) * 60 * 60 * 1000000) /* a day */

static void rdb_save(RedisModuleIO *rdb, void *value) {
    RedisModule_SaveUnsigned(rdb, (uint64_t)lock_value_holder_count(value));
    lock_cursor cursor;
    lock_cursor_start(&cursor, value);
    for (const lock_holder *each; (each = lock_cursor_next(&cursor)) != NULL;) {
        char bytes[LOCK_CODEC_SIZE_MAX];
        lock_state state = lock_holder_state(each);
        RedisModule_SaveStringBuffer(rdb, bytes, lock_encode(&state, bytes));
    }
    lock_cursor_stop(&cursor);
}

/* A file and a master are trusted. But RESTORE is for everybody, and a fence far ahead of the clock
 * would raise the fences of all locks. */
static bool is_fence_too_far(RedisModuleIO *rdb, int64_t fence) {
    if (fence_may_restore(fence, fences_time()) ||
        !server_decides(RedisModule_GetContextFromIO(rdb)))
        return false;
    RedisModule_LogIOError(rdb, "warning", "a fence too far ahead of the clock: %lld",
                           (long long)fence);
    return true;
}

/* Adds a holder to the value, which is NULL before the first. False: no such lock can exist, or
 * its fence is too far ahead. */
static bool add_loaded(RedisModuleIO *rdb, lock_value **value, const char *bytes, size_t size) {
    lock_state state;
    if (!lock_decode(bytes, size, &state) || is_fence_too_far(rdb, state.fence)) return false;
    if (*value != NULL) {
        if (!state.is_shared || !lock_value_is_shared(*value)) return false;
        if (lock_value_find(*value, state.token) != NULL) return false;
    }
    lock_holder *loaded = lock_value_new(&state, server_boot_us());
    lock_holder_set_stray(loaded);
    *value = *value == NULL ? &loaded->head : lock_value_add(*value, loaded);
    fence_see(state.fence, fences_time());
    return true;
}

/* NULL: the lock is corrupt or incomplete. */
static lock_value *load_holders(RedisModuleIO *rdb) {
    lock_value *value = NULL;
    uint64_t count = RedisModule_LoadUnsigned(rdb);
    if (RedisModule_IsIOError(rdb)) return NULL;
    bool is_sane = count >= 1 && count <= LOCK_HOLDERS_MAX;
    for (uint64_t i = 0; is_sane && i < count; i++) {
        size_t size;
        char *bytes = RedisModule_LoadStringBuffer(rdb, &size);
        is_sane = bytes != NULL && add_loaded(rdb, &value, bytes, size);
        if (bytes != NULL) RedisModule_Free(bytes);
    }
    if (is_sane) return value;
    RedisModule_LogIOError(rdb, "warning", "a corrupt lock of %llu holders",
                           (unsigned long long)count);
    if (value != NULL) lock_value_free(value);
    return NULL;
}

/* NULL refuses the whole file or RESTORE: better no data than a lock nobody took. */
static void *rdb_load(RedisModuleIO *rdb, int encoding_version) {
    if (encoding_version != ENCODING_VERSION) {
        RedisModule_LogIOError(rdb, "warning", "a lock of encoding version %d, only %d is known",
                               encoding_version, ENCODING_VERSION);
        return NULL;
    }
    lock_value *value = load_holders(rdb);
    if (value == NULL) return NULL;
    const RedisModuleString *name = RedisModule_GetKeyNameFromIO(rdb);
    int db = RedisModule_GetDbIdFromIO(rdb);
    if (name == NULL)
        strays_search_soon();
    else if (leases_are_loading())
        lock_value_index_strays(value, db, (RedisModuleString *)name, server_boot_us(), true);
    else
        strays_expect(db, name); /* RESTORE */
    return value;
}

static void aof_rewrite(RedisModuleIO *aof, RedisModuleString *key, void *value) {
    lock_cursor cursor;
    lock_cursor_start(&cursor, value);
    for (const lock_holder *each; (each = lock_cursor_next(&cursor)) != NULL;) {
        lock_state state = lock_holder_state(each);
        replicate_emit_aof(aof, key, &state);
    }
    lock_cursor_stop(&cursor);
}

/* One sequence for each holder: the order of the holders does not count. */
static void digest(RedisModuleDigest *md, void *value) {
    lock_cursor cursor;
    lock_cursor_start(&cursor, value);
    for (lock_holder *each; (each = lock_cursor_next(&cursor)) != NULL;) {
        RedisModule_DigestAddLongLong(md, each->is_shared);
        RedisModule_DigestAddLongLong(md, each->fence);
        RedisModule_DigestAddLongLong(md, each->lease_ms);
        RedisModule_DigestAddStringBuffer(md, each->token, each->token_length);
        RedisModule_DigestEndSequence(md);
    }
    lock_cursor_stop(&cursor);
}

static size_t mem_usage(const void *value) {
    return lock_value_memory((lock_value *)value);
}

/* The key was deleted, evicted, overwritten, renamed or moved. If the module itself has removed
 * the key, the last lease is already gone. */
static void unlinked(RedisModuleKeyOptCtx *ctx, const void *data) {
    int db = RedisModule_GetDbIdFromOptCtx(ctx);
    RedisModuleString *name = (RedisModuleString *)RedisModule_GetKeyNameFromOptCtx(ctx);
    int64_t lost = lock_value_lose((lock_value *)data, db, name);
    stats_count_many(STATS_FORCED, lost);
    if (lost > 0) strays_search_soon();
    watches_mark(db, name);
    wait_queue *waiting = queues_find(db, name);
    if (waiting != NULL) queues_mark(waiting);
}

/* With many holders, UNLINK frees the value in another thread. */
static size_t free_effort(RedisModuleString *key, const void *value) {
    (void)key;
    return (size_t)lock_value_holder_count(value);
}

static void free_value(void *value) {
    lock_value_free(value);
}

/* A file with aux data does not load without the module. So the module saves the clock only while
 * it matters: an old fence is reached again only if the wall clock is set back by as much. An
 * operator who is about to remove the module gives it up by dlock.drain. */
static void aux_save(RedisModuleIO *rdb, int when) {
    (void)when;
    fence_time now = fences_time();
    if (settings.drain || fence_last() == 0) return;
    if (fence_last() <= now.wall_us - FENCE_KEPT_US) return;
    RedisModule_SaveSigned(rdb, fence_base(now));
    RedisModule_SaveSigned(rdb, fence_clock(now));
}

static int aux_load(RedisModuleIO *rdb, int encoding_version, int when) {
    (void)when;
    int64_t base_us = RedisModule_LoadSigned(rdb), clock_us = RedisModule_LoadSigned(rdb);
    if (RedisModule_IsIOError(rdb)) return REDISMODULE_ERR;
    if (encoding_version != ENCODING_VERSION || base_us < 1 || base_us > clock_us ||
        clock_us >= LOCK_FENCE_LIMIT) {
        RedisModule_LogIOError(rdb, "warning", "a corrupt clock of fences");
        return REDISMODULE_ERR;
    }
    fence_hear(base_us, clock_us, fences_time());
    return REDISMODULE_OK;
}

/* Version 5 of the methods (7.2) is version 4 with a further field, which older servers do not
 * read. */
typedef struct type_methods_v5 {
    RedisModuleTypeMethods v4;
    RedisModuleTypeAuxSaveFunc aux_save2; /* aux_save, but omits an empty record */
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
                .free_effort = free_effort,
                .unlink2 = unlinked,
            },
        .aux_save2 = aux_save,
    };
    lock_type = RedisModule_CreateDataType(ctx, "dlock-key", ENCODING_VERSION,
                                           (RedisModuleTypeMethods *)&methods);
    return lock_type == NULL ? REDISMODULE_ERR : REDISMODULE_OK;
}
