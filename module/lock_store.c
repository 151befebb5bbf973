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
#include "ties.h"
#include "watches.h"
#include <string.h>

/* -- the holder in the entry */

static void set_holder(lock_entry *entry, lock_holder *holder, int64_t left_us) {
    entry->holder = holder;
    entry->hold = lock_holder_hold(holder);
    entry->held = lock_holder_state(holder);
    entry->held.left_us = left_us;
}

/* The lease starts now. */
static void start_lease(lock_entry *entry, lock_holder *holder) {
    holder->is_over = holder->is_copy = false;
    lock_holder_index(holder, entry->db, entry->name, entry->now_us, false, &entry->shared);
    set_holder(entry, holder, (int64_t)holder->lease_ms * 1000);
}

/* The hold came, or its lease has ended, while the slot of the lock was another server's, which may
 * have gone on with the hold: a session keeps it there. If the slot is here now, the lease starts
 * anew. */
static bool has_taken_over(const lock_entry *entry, const lock_holder *holder) {
    return (holder->is_over || holder->is_copy) && server_has_slot(entry->db, entry->name);
}

/* Makes the holder the one in the entry. */
static void select_holder(lock_entry *entry, lock_holder *holder) {
    int64_t end_us;
    void *tie;
    if (!leases_find_end(lock_holder_hold(holder), holder->lease_ms, &end_us, &tie)) {
        start_lease(entry, holder);
        holder->is_copy = server_is_importing(entry->ctx);
        watches_mark(entry->db, entry->name); /* the lock has just got this name */
        return;
    }
    if (has_taken_over(entry, holder)) {
        holder->is_over = holder->is_copy = false;
        end_us = entry->now_us + holder->lease_ms * INT64_C(1000);
        leases_set_end(lock_holder_hold(holder), end_us);
    }
    if (tie != NULL) end_us = ties_hold_end(tie, end_us, entry->now_us);
    set_holder(entry, holder, holder->is_over ? 0 : end_us - entry->now_us);
}

/* The only holder, or none in particular of several. */
static void read_value(lock_entry *entry, lock_value *value) {
    entry->is_held = true;
    entry->value = value;
    if (!value->is_table) {
        select_holder(entry, (lock_holder *)value);
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
    if (found != NULL) select_holder(entry, found);
    return found != NULL;
}

bool lock_store_next(lock_entry *entry, lock_cursor *cursor) {
    lock_holder *next = lock_cursor_next(cursor);
    if (next != NULL) select_holder(entry, next);
    return next != NULL;
}

bool lock_store_may_be_over(const lock_entry *entry) {
    return entry->value != NULL && entry->value->is_table &&
           heap_first(&((const lock_table *)entry->value)->ends)->key <= entry->now_us;
}

/* A stray has no lease yet: it gets one when a command asks for its holder. */
bool lock_store_find_over(lock_entry *entry, int *looks) {
    lock_table *table = (lock_table *)entry->value;
    for (; lock_store_may_be_over(entry) && *looks > 0; (*looks)--) {
        lock_holder *first = lock_holder_of(heap_first(&table->ends));
        int64_t left_us = (int64_t)first->lease_ms * 1000;
        if (first->hold_id != LOCK_VALUE_STRAY) {
            select_holder(entry, first);
            if (entry->held.left_us <= 0) return true;
            left_us = entry->held.left_us;
        }
        lock_value_set_end(table, first, entry->now_us + left_us);
    }
    read_value(entry, entry->value);
    return false;
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
    entry->permitted = NULL;
    entry->is_held = false;
    entry->is_changed = false;
    entry->value = NULL;
    entry->event_count = 0;
    entry->shared = NULL;

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

static inline void close_key(lock_entry *entry) {
    RedisModule_CloseKey(entry->key);
    leases_release_name(entry->shared);
    entry->key = NULL;
    entry->is_held = false;
}

static ALWAYS_INLINE void tell(lock_entry *entry) {
    if (entry->is_changed) {
        RedisModule_SignalModifiedKey(entry->ctx, entry->name);
        watches_mark(entry->db, entry->name);
    }
    for (int i = 0; i < entry->event_count; i++)
        for (int64_t left = entry->events[i].count; left > 0; left--)
            RedisModule_NotifyKeyspaceEvent(entry->ctx, REDISMODULE_NOTIFY_MODULE,
                                            entry->events[i].name, entry->name);
}

void lock_store_close_key(lock_entry *entry) {
    close_key(entry);
}

void lock_store_tell(lock_entry *entry) {
    tell(entry);
}

void lock_store_close(lock_entry *entry) {
    close_key(entry);
    tell(entry);
}

void lock_store_notify(lock_entry *entry, const char *event) {
    int i = 0;
    while (i < entry->event_count && strcmp(entry->events[i].name, event) != 0)
        i++;
    if (i == entry->event_count) {
        entry->events[entry->event_count++].name = event;
        entry->events[i].count = 0;
    }
    entry->events[i].count++;
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
        ties_forget(lock_holder_hold(each));
        leases_drop(lock_holder_hold(each));
    }
    lock_cursor_stop(&cursor);
}

/* Clears the TTL: an EXPIRE meant for the previous holder does not end the hold of the next. */
void lock_store_put(lock_entry *entry, const lock_state *state) {
    lock_holder *holder = lock_value_new(state, entry->now_us);
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
    lock_holder *holder = lock_value_new(state, entry->now_us);
    replace_value(entry, lock_value_add(entry->value, holder));
    start_lease(entry, holder);
}

/* No modification in the eyes of WATCH and of client-side caching: the holders stay the same. So
 * clients that track the key are not told of each renewal. */
void lock_store_renew(lock_entry *entry, int64_t lease_ms) {
    entry->holder->lease_ms = (uint32_t)lease_ms;
    entry->holder->is_over = entry->holder->is_copy = false;
    entry->held.lease_ms = lease_ms;
    if (ties_keeper(entry->hold) != NULL) return; /* the session has the end of the hold */
    leases_restart(entry->hold, lease_ms, entry->now_us);
    entry->held.left_us = lease_ms * 1000;
}

void lock_store_set_fence(lock_entry *entry, int64_t fence) {
    lock_value_set_fence(entry->value, entry->holder, fence);
    entry->is_changed = true;
    entry->held.fence = fence;
}

void lock_store_renew_hold(lock_entry *entry) {
    entry->holder->is_copy = false;
    entry->hold = leases_renew_id(entry->hold);
    lock_holder_set_hold(entry->holder, entry->hold);
}

void lock_store_set_copy(lock_entry *entry) {
    entry->holder->is_copy = true;
}

void lock_store_set_over(lock_entry *entry, int64_t again_us) {
    entry->holder->is_over = true;
    leases_set_end(entry->hold, again_us);
    entry->held.left_us = 0;
    if (entry->value->is_table)
        lock_value_set_end((lock_table *)entry->value, entry->holder, entry->now_us);
}

void lock_store_set_string_ttl(lock_entry *entry, int64_t expires_ms) {
    RedisModule_SetAbsExpire(entry->key, expires_ms);
    entry->is_changed = true;
}

/* Drops the lease first: when the core unlinks a value without a lease, lock_type.c knows that
 * the module itself has ended the lock. */
void lock_store_remove(lock_entry *entry) {
    if (entry->value != NULL) {
        ties_forget(entry->hold);
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
