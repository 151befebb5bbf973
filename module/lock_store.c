/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_store.c - see lock_store.h.
 *
 *   open, close     a key, its value, and its only holder
 *   find, next      one of several holders
 *   put, join ...   changes
 *
 * The module has told the core not to signal keys open for writing (WATCH, client-side caching). So
 * every function here that changes a key notes it, and lock_store_close() signals it once. */
#include "lock_store.h"

#include "leases.h"
#include "server.h"
#include "sessions.h"

/* -- the holder in the entry */

static void set_holder(lock_entry *entry, lock_holder *holder, int64_t left_us) {
    entry->holder = holder;
    entry->hold = lock_holder_hold(holder);
    entry->held = lock_holder_state(holder);
    entry->held.left_us = left_us;
}

/* The lease starts now. */
static void start_lease(lock_entry *entry, lock_holder *holder) {
    holder->is_over = false;
    lock_holder_index(holder, entry->db, entry->name, entry->now_us);
    set_holder(entry, holder, (int64_t)holder->lease_ms * 1000);
}

void lock_store_select(lock_entry *entry, lock_holder *holder) {
    int64_t end_us;
    if (leases_end(lock_holder_hold(holder), holder->lease_ms, &end_us))
        set_holder(entry, holder, holder->is_over ? 0 : end_us - entry->now_us);
    else
        start_lease(entry, holder);
}

/* The only holder, or none in particular of several. */
static void read_value(lock_entry *entry, lock_value *value) {
    entry->is_held = true;
    entry->value = value;
    if (!value->is_table) {
        lock_store_select(entry, (lock_holder *)value);
        return;
    }
    entry->holder = NULL;
    entry->hold = (lease_ref){.id = 0};
    entry->held = (lock_state){.kind = LOCK_KIND_LOCK, .is_shared = true, .left_us = SERVER_NEVER};
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

bool lock_store_find(lock_entry *entry, lock_token token) {
    if (!entry->is_held) return false;
    if (entry->value == NULL || !entry->value->is_table)
        return lock_is_held_by(&entry->held, token);
    lock_holder *found = lock_value_find(entry->value, token);
    if (found != NULL) lock_store_select(entry, found);
    return found != NULL;
}

bool lock_store_next(lock_entry *entry, lock_cursor *cursor) {
    lock_holder *next = lock_cursor_next(cursor);
    if (next != NULL) lock_store_select(entry, next);
    return next != NULL;
}

bool lock_store_may_be_over(const lock_entry *entry) {
    return entry->value != NULL && entry->value->is_table &&
           ((const lock_table *)entry->value)->first_end_us <= entry->now_us;
}

int64_t lock_store_find_over(lock_entry *entry, lock_holder ***over) {
    lock_table *table = (lock_table *)entry->value;
    int64_t count = 0, first_us = SERVER_NEVER;
    *over = RedisModule_Alloc(sizeof((*over)[0]) * (size_t)table->count);
    lock_cursor cursor;
    lock_cursor_start(&cursor, entry->value);
    while (lock_store_next(entry, &cursor)) {
        if (entry->held.left_us <= 0)
            (*over)[count++] = entry->holder;
        else if (entry->held.left_us < first_us)
            first_us = entry->held.left_us;
    }
    lock_cursor_stop(&cursor);
    table->first_end_us = first_us == SERVER_NEVER ? 0 : entry->now_us + first_us;
    read_value(entry, entry->value);
    return count;
}

/* -- open and close */

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
    entry->is_changed = false;
    entry->value = NULL;
    entry->event_count = 0;

    switch (RedisModule_KeyType(entry->key)) {
    case REDISMODULE_KEYTYPE_EMPTY:
        return true;
    case REDISMODULE_KEYTYPE_STRING:
        read_string(entry);
        return true;
    case REDISMODULE_KEYTYPE_MODULE:
        if (RedisModule_ModuleTypeGetType(entry->key) != lock_type) break;
        read_value(entry, RedisModule_ModuleTypeGetValue(entry->key));
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
    if (entry->is_changed) RedisModule_SignalModifiedKey(entry->ctx, entry->name);
    for (int i = 0; i < entry->event_count; i++)
        for (int64_t left = entry->events[i].count; left > 0; left--)
            RedisModule_NotifyKeyspaceEvent(entry->ctx, REDISMODULE_NOTIFY_MODULE,
                                            entry->events[i].name, entry->name);
}

void lock_store_notify(lock_entry *entry, const char *event) {
    int last = entry->event_count - 1;
    if (last >= 0 && entry->events[last].name == event) {
        entry->events[last].count++;
    } else if (entry->event_count < LOCK_EVENTS_MAX) {
        entry->events[entry->event_count].name = event;
        entry->events[entry->event_count++].count = 1;
    }
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

/* -- changes */

static void drop_all_holds(lock_value *value) {
    lock_cursor cursor;
    lock_cursor_start(&cursor, value);
    for (lock_holder *each; (each = lock_cursor_next(&cursor)) != NULL;) {
        sessions_forget(each->hold_id);
        leases_drop(lock_holder_hold(each));
    }
    lock_cursor_stop(&cursor);
}

/* Clears the TTL: an EXPIRE meant for the previous holder does not end the hold of the next. */
void lock_store_put(lock_entry *entry, const lock_state *state) {
    lock_holder *holder = lock_value_new(state);
    if (entry->value != NULL) {
        void *old;
        drop_all_holds(entry->value);
        RedisModule_ModuleTypeReplaceValue(entry->key, lock_type, holder, &old);
        RedisModule_SetAbsExpire(entry->key, REDISMODULE_NO_EXPIRE);
        lock_value_free(old);
    } else {
        RedisModule_ModuleTypeSetValue(entry->key, lock_type, holder);
    }
    start_lease(entry, holder);
    entry->is_held = true;
    entry->is_changed = true;
    entry->value = &holder->head;
}

static void replace_value(lock_entry *entry, lock_value *value) {
    void *old; /* lives on as a part of the new value, or was freed with it */
    if (value != entry->value)
        RedisModule_ModuleTypeReplaceValue(entry->key, lock_type, value, &old);
    entry->value = value;
    entry->is_changed = true;
}

void lock_store_join(lock_entry *entry, const lock_state *state) {
    lock_holder *holder = lock_value_new(state);
    replace_value(entry, lock_value_add(entry->value, holder));
    lock_table *table = (lock_table *)entry->value;
    start_lease(entry, holder);
    int64_t end_us = entry->now_us + entry->held.left_us;
    if (end_us < table->first_end_us) table->first_end_us = end_us;
}

/* No modification in the eyes of WATCH and of client-side caching: the holders stay the same. So
 * clients that track the key are not told of each renewal. */
void lock_store_renew(lock_entry *entry, int64_t lease_ms) {
    entry->holder->lease_ms = (uint32_t)lease_ms;
    entry->holder->is_over = false;
    leases_restart(entry->hold, lease_ms, entry->now_us);
    entry->held.lease_ms = lease_ms;
    entry->held.left_us = lease_ms * 1000;
}

void lock_store_set_fence(lock_entry *entry, int64_t fence) {
    entry->holder->fence = fence;
    entry->is_changed = true;
    entry->held.fence = fence;
}

void lock_store_renew_hold(lock_entry *entry) {
    entry->hold = leases_renew_id(entry->hold);
    lock_holder_set_hold(entry->holder, entry->hold);
}

void lock_store_set_over(lock_entry *entry, int64_t again_us) {
    entry->holder->is_over = true;
    leases_postpone(entry->hold, again_us);
    entry->held.left_us = 0;
    if (entry->value->is_table) ((lock_table *)entry->value)->first_end_us = 0;
}

void lock_store_set_string_ttl(lock_entry *entry, int64_t expires_ms) {
    RedisModule_SetAbsExpire(entry->key, expires_ms);
    entry->is_changed = true;
}

/* Drops the lease first: when the core unlinks a value without a lease, lock_type.c knows that
 * the module itself has ended the lock. */
void lock_store_remove(lock_entry *entry) {
    if (entry->value != NULL) {
        sessions_forget(entry->hold.id);
        leases_drop(entry->hold);
    }
    if (lock_store_holder_count(entry) > 1) {
        replace_value(entry, lock_value_remove(entry->value, entry->holder));
        read_value(entry, entry->value);
        return;
    }
    if (entry->value != NULL) entry->holder->hold_id = 0;
    RedisModule_DeleteKey(entry->key);
    entry->is_changed = true;
    entry->is_held = false;
    entry->value = NULL;
}
