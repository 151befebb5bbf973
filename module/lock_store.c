/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_store.c - see lock_store.h.
 *
 * The module has told the core not to signal keys open for writing (WATCH, client-side caching). So
 * every function here that changes a key also signals it: see changed(). */
#include "lock_store.h"

#include "leases.h"
#include "lock_value.h"
#include "server.h"

static lock_value *value_of(const lock_entry *entry) {
    return RedisModule_ModuleTypeGetValue(entry->key);
}

static void changed(const lock_entry *entry) {
    RedisModule_SignalModifiedKey(entry->ctx, entry->name);
}

static void read_lock(lock_entry *entry) {
    lock_value *value = value_of(entry);
    int64_t end_us;
    if (!leases_end(lock_value_hold(value), value->lease_ms, &end_us)) {
        lock_value_index(value, entry->db, entry->name, entry->now_us);
        leases_end(lock_value_hold(value), value->lease_ms, &end_us);
    }
    entry->is_held = true;
    entry->hold = lock_value_hold(value);
    entry->held = lock_value_state(value);
    entry->held.left_us = value->is_over ? 0 : end_us - entry->now_us;
}

/* Keeps one byte more than a token may have: a longer string then equals no token. */
static void read_string(lock_entry *entry) {
    entry->is_held = true;
    entry->hold = (lease_ref){.id = 0};
    entry->held = (lock_state){.kind = LOCK_KIND_STRING};
    lock_token *token = &entry->held.token;
    token->bytes = RedisModule_StringDMA(entry->key, &token->length, REDISMODULE_READ);
    if (token->length > LOCK_TOKEN_MAX + 1) token->length = LOCK_TOKEN_MAX + 1;
}

bool lock_store_open(lock_entry *entry, RedisModuleCtx *ctx, RedisModuleString *name,
                     lock_access access) {
    int mode = access == LOCK_READ ? REDISMODULE_READ : REDISMODULE_READ | REDISMODULE_WRITE;
    entry->ctx = ctx;
    entry->argv = NULL;
    entry->argc = 0;
    entry->name = name;
    entry->db = RedisModule_GetSelectedDb(ctx);
    entry->now_us = server_boot_us();
    entry->key = RedisModule_OpenKey(ctx, name, mode);
    entry->is_held = false;
    entry->event_count = 0;

    switch (RedisModule_KeyType(entry->key)) {
    case REDISMODULE_KEYTYPE_EMPTY:
        return true;
    case REDISMODULE_KEYTYPE_STRING:
        read_string(entry);
        return true;
    case REDISMODULE_KEYTYPE_MODULE:
        if (RedisModule_ModuleTypeGetType(entry->key) != lock_type) break;
        read_lock(entry);
        return true;
    }
    if (access == LOCK_OVERWRITE) return true;
    lock_store_close(entry);
    return false;
}

void lock_store_close(lock_entry *entry) {
    RedisModule_CloseKey(entry->key);
    entry->key = NULL;
    entry->is_held = false;
    for (int i = 0; i < entry->event_count; i++)
        RedisModule_NotifyKeyspaceEvent(entry->ctx, REDISMODULE_NOTIFY_MODULE, entry->events[i],
                                        entry->name);
}

void lock_store_notify(lock_entry *entry, const char *event) {
    if (entry->event_count < LOCK_EVENTS_MAX) entry->events[entry->event_count++] = event;
}

const lock_state *lock_store_held(const lock_entry *entry) {
    return entry->is_held ? &entry->held : NULL;
}

int64_t lock_store_key_ttl_ms(const lock_entry *entry) {
    int64_t expires_ms = RedisModule_GetAbsExpire(entry->key);
    if (expires_ms == REDISMODULE_NO_EXPIRE) return -1;
    int64_t now_ms = server_wall_us() / 1000;
    return expires_ms > now_ms ? expires_ms - now_ms : 0;
}

/* Clears the TTL: an EXPIRE meant for the previous holder does not end the hold of the next. */
void lock_store_put(lock_entry *entry, const lock_state *state) {
    lock_value *value = lock_value_new(state);
    if (entry->is_held && entry->held.kind == LOCK_KIND_LOCK) {
        void *old;
        leases_drop(entry->hold);
        RedisModule_ModuleTypeReplaceValue(entry->key, lock_type, value, &old);
        RedisModule_SetAbsExpire(entry->key, REDISMODULE_NO_EXPIRE);
        lock_value_free(old);
    } else {
        RedisModule_ModuleTypeSetValue(entry->key, lock_type, value);
    }
    lock_value_index(value, entry->db, entry->name, entry->now_us);
    changed(entry);
    entry->is_held = true;
    entry->held = lock_value_state(value);
    entry->held.left_us = state->lease_ms * 1000;
    entry->hold = lock_value_hold(value);
}

void lock_store_renew(lock_entry *entry, int64_t lease_ms) {
    lock_value *value = value_of(entry);
    value->lease_ms = (uint32_t)lease_ms;
    value->is_over = false;
    leases_restart(entry->hold, lease_ms, entry->now_us);
    changed(entry);
    entry->held.lease_ms = lease_ms;
    entry->held.left_us = lease_ms * 1000;
}

void lock_store_set_fence(lock_entry *entry, int64_t fence) {
    value_of(entry)->fence = fence;
    changed(entry);
    entry->held.fence = fence;
}

void lock_store_renew_hold(lock_entry *entry) {
    entry->hold = leases_renew_id(entry->hold);
    lock_value_set_hold(value_of(entry), entry->hold);
}

void lock_store_set_over(lock_entry *entry, int64_t again_us) {
    value_of(entry)->is_over = true;
    leases_postpone(entry->hold, again_us);
    entry->held.left_us = 0;
}

void lock_store_set_string_ttl(lock_entry *entry, int64_t expires_ms) {
    RedisModule_SetAbsExpire(entry->key, expires_ms);
    changed(entry);
}

/* Drops the lease first: when the core unlinks a value without a lease, lock_type.c knows that
 * the module itself has ended the lock. */
void lock_store_remove(lock_entry *entry) {
    if (entry->held.kind == LOCK_KIND_LOCK) {
        leases_drop(entry->hold);
        value_of(entry)->hold_id = 0;
    }
    RedisModule_DeleteKey(entry->key);
    changed(entry);
    entry->is_held = false;
}
