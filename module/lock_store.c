/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_store.c - see lock_store.h.
 *
 * A plain string is read with GETRANGE, not by direct access, which would change its encoding. We
 * ask for one byte more than a token may have: a longer string then equals no token.
 *
 * We told the core not to signal every key that was open for writing (WATCH, client-side caching);
 * so each change here does it. */
#include "lock_store.h"

#include "lock_type.h"

static bool read_lock(lock_entry *entry) {
    entry->is_held = true;
    entry->held = lock_value_state(RedisModule_ModuleTypeGetValue(entry->key));
    return true;
}

static bool read_string(lock_entry *entry) {
    entry->string = RedisModule_Call(entry->ctx, "GETRANGE", "sll", entry->name, 0LL,
                                     (long long)LOCK_TOKEN_MAX);
    if (RedisModule_CallReplyType(entry->string) != REDISMODULE_REPLY_STRING) {
        lock_store_close(entry);
        return false;
    }
    entry->is_held = true;
    entry->held = (lock_state){.kind = LOCK_KIND_STRING, .expires_ms = LOCK_NO_EXPIRY};
    entry->held.token.bytes =
        RedisModule_CallReplyStringPtr(entry->string, &entry->held.token.length);
    return true;
}

bool lock_store_open(lock_entry *entry, RedisModuleCtx *ctx, RedisModuleString *name,
                     lock_access access) {
    int mode = access == LOCK_READ ? REDISMODULE_READ : REDISMODULE_READ | REDISMODULE_WRITE;
    *entry = (lock_entry){
        .ctx = ctx,
        .name = name,
        .db = RedisModule_GetSelectedDb(ctx),
        .key = RedisModule_OpenKey(ctx, name, mode),
    };

    switch (RedisModule_KeyType(entry->key)) {
    case REDISMODULE_KEYTYPE_EMPTY:
        return true;
    case REDISMODULE_KEYTYPE_STRING:
        return read_string(entry);
    case REDISMODULE_KEYTYPE_MODULE:
        if (RedisModule_ModuleTypeGetType(entry->key) == lock_type) return read_lock(entry);
        break;
    }
    if (access == LOCK_OVERWRITE) return true;
    lock_store_close(entry);
    return false;
}

void lock_store_close(lock_entry *entry) {
    if (entry->string != NULL) RedisModule_FreeCallReply(entry->string);
    RedisModule_CloseKey(entry->key);
    entry->string = NULL;
    entry->key = NULL;
    entry->is_held = false;
}

const lock_state *lock_store_held(const lock_entry *entry) {
    return entry->is_held ? &entry->held : NULL;
}

void lock_store_read_expiry(lock_entry *entry) {
    if (entry->is_held) entry->held.expires_ms = RedisModule_GetAbsExpire(entry->key);
}

void lock_store_put(lock_entry *entry, const lock_state *state) {
    lock_value *value = lock_value_new(state);
    if (entry->is_held && entry->held.kind == LOCK_KIND_LOCK) {
        void *old;
        RedisModule_ModuleTypeReplaceValue(entry->key, lock_type, value, &old);
        lock_value_free(old);
    } else {
        RedisModule_ModuleTypeSetValue(entry->key, lock_type, value);
    }
    RedisModule_SetAbsExpire(entry->key, state->expires_ms);
    RedisModule_SignalModifiedKey(entry->ctx, entry->name);
    entry->is_held = true;
    entry->held = lock_value_state(value);
    entry->held.expires_ms = state->expires_ms;
}

void lock_store_renew(lock_entry *entry, int64_t lease_ms, int64_t expires_ms) {
    if (entry->held.kind == LOCK_KIND_LOCK) {
        lock_value *value = RedisModule_ModuleTypeGetValue(entry->key);
        value->lease_ms = (uint32_t)lease_ms;
        entry->held.lease_ms = lease_ms;
    }
    RedisModule_SetAbsExpire(entry->key, expires_ms);
    RedisModule_SignalModifiedKey(entry->ctx, entry->name);
    entry->held.expires_ms = expires_ms;
}

void lock_store_remove(lock_entry *entry) {
    RedisModule_DeleteKey(entry->key);
    RedisModule_SignalModifiedKey(entry->ctx, entry->name);
    entry->is_held = false;
}
