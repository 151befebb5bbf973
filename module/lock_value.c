/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_value.c - see lock_value.h.
 *
 *   holders    make, find, add and remove holders; a table exists while there are two or more
 *   cursor     visit every holder
 *   leases     the lease entries of the holders (leases.h)
 *   counters   for INFO; atomic, since Redis frees values in other threads, too */
#include "lock_value.h"

#include "server.h"
#include "ties.h"
#include <stddef.h>
#include <string.h>

RedisModuleType *lock_type;
static int64_t value_count, shared_count, stray_count;
static int64_t further_count; /* holders of tables, without one for each table */

static void add(int64_t *counter, int64_t change) {
    __atomic_add_fetch(counter, change, __ATOMIC_RELAXED);
}

static int64_t get(const int64_t *counter) {
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/* -- holders */

static void *allocation_of(lock_holder *holder) {
    return holder->is_shared ? (void *)lock_holder_node(holder) : holder;
}

lock_holder *lock_value_new(const lock_state *state, int64_t now_us) {
    size_t node_size = state->is_shared ? sizeof(heap_node) : 0;
    char *memory =
        RedisModule_Alloc(node_size + offsetof(lock_holder, token) + state->token.length);
    lock_holder *made = (void *)(memory + node_size);
    if (state->is_shared) lock_holder_node(made)->key = now_us + state->lease_ms * 1000;
    made->head.is_table = false;
    made->is_shared = state->is_shared;
    made->is_over = false;
    made->is_copy = false;
    made->token_length = (uint16_t)state->token.length;
    made->lease_ms = (uint32_t)state->lease_ms;
    made->hold_id = 0;
    made->hold_slot = 0;
    made->fence = state->fence;
    memcpy(made->token, state->token.bytes, state->token.length);
    add(&value_count, 1);
    if (made->is_shared) add(&shared_count, 1);
    return made;
}

static void put(lock_table *table, lock_holder *holder) {
    RedisModule_DictSetC(table->by_token, holder->token, holder->token_length, holder);
    heap_add(&table->ends, lock_holder_node(holder));
    table->count++;
    if (holder->fence > table->newest_fence) table->newest_fence = holder->fence;
}

static lock_table *make_table(void) {
    lock_table *made = RedisModule_Alloc(sizeof(*made));
    *made = (lock_table){.head = {.is_table = true}, .by_token = RedisModule_CreateDict(NULL)};
    return made;
}

static void free_table(lock_table *table) {
    RedisModule_FreeDict(NULL, table->by_token);
    RedisModule_Free(table->ends.nodes);
    RedisModule_Free(table);
}

static void free_holder(lock_holder *holder) {
    if (holder->hold_id == LOCK_VALUE_STRAY) add(&stray_count, -1);
    RedisModule_Free(allocation_of(holder));
}

/* lock_value_new() has counted the added holder as a lock of its own. */
lock_value *lock_value_add(lock_value *value, lock_holder *added) {
    lock_table *table = (lock_table *)value;
    if (!value->is_table) {
        table = make_table();
        put(table, (lock_holder *)value);
    }
    put(table, added);
    add(&value_count, -1);
    add(&shared_count, -1);
    add(&further_count, 1);
    return &table->head;
}

lock_value *lock_value_remove(lock_value *value, lock_holder *removed) {
    lock_table *table = (lock_table *)value;
    RedisModule_DictDelC(table->by_token, removed->token, removed->token_length, NULL);
    heap_remove(&table->ends, lock_holder_node(removed));
    table->count--;
    add(&further_count, -1);
    free_holder(removed);
    if (table->count > 1) return value;

    lock_cursor cursor;
    lock_cursor_start(&cursor, value);
    lock_holder *last = lock_cursor_next(&cursor);
    lock_cursor_stop(&cursor);
    free_table(table);
    return &last->head;
}

void lock_value_free(lock_value *value) {
    add(&value_count, -1);
    if (lock_value_is_shared(value)) add(&shared_count, -1);
    if (!value->is_table) {
        free_holder((lock_holder *)value);
        return;
    }
    lock_table *table = (lock_table *)value;
    add(&further_count, 1 - table->count);
    lock_cursor cursor;
    lock_cursor_start(&cursor, value);
    for (lock_holder *each; (each = lock_cursor_next(&cursor)) != NULL;)
        free_holder(each);
    lock_cursor_stop(&cursor);
    free_table(table);
}

void lock_value_set_end(lock_table *table, lock_holder *holder, int64_t end_us) {
    heap_remove(&table->ends, lock_holder_node(holder));
    lock_holder_node(holder)->key = end_us;
    heap_add(&table->ends, lock_holder_node(holder));
}

void lock_value_set_fence(lock_value *value, lock_holder *holder, int64_t fence) {
    holder->fence = fence;
    if (!value->is_table) return;
    lock_table *table = (lock_table *)value;
    if (fence > table->newest_fence) table->newest_fence = fence;
}

int64_t lock_value_newest_fence(const lock_value *value) {
    return value->is_table ? ((const lock_table *)value)->newest_fence
                           : ((const lock_holder *)value)->fence;
}

lock_holder *lock_value_find(lock_value *value, lock_token token) {
    if (value->is_table) {
        lock_table *table = (lock_table *)value;
        return RedisModule_DictGetC(table->by_token, (void *)token.bytes, token.length, NULL);
    }
    lock_holder *only = (lock_holder *)value;
    bool is_same =
        only->token_length == token.length && memcmp(only->token, token.bytes, token.length) == 0;
    return is_same ? only : NULL;
}

bool lock_value_is_shared(const lock_value *value) {
    return value->is_table || ((const lock_holder *)value)->is_shared;
}

lock_state lock_holder_state(const lock_holder *holder) {
    return (lock_state){
        .kind = LOCK_KIND_LOCK,
        .is_shared = holder->is_shared,
        .token = {holder->token, holder->token_length},
        .fence = holder->fence,
        .lease_ms = holder->lease_ms,
    };
}

/* -- cursor */

void lock_cursor_start(lock_cursor *cursor, lock_value *value) {
    *cursor = (lock_cursor){.only = value->is_table ? NULL : (lock_holder *)value};
    if (value->is_table)
        cursor->iterator =
            RedisModule_DictIteratorStartC(((lock_table *)value)->by_token, "^", NULL, 0);
}

lock_holder *lock_cursor_next(lock_cursor *cursor) {
    void *next = cursor->only;
    cursor->only = NULL;
    if (cursor->iterator != NULL && RedisModule_DictNextC(cursor->iterator, NULL, &next) == NULL)
        return NULL;
    return next;
}

void lock_cursor_stop(lock_cursor *cursor) {
    if (cursor->iterator != NULL) RedisModule_DictIteratorStop(cursor->iterator);
}

/* -- leases */

/* The entry of a shared holder also has the token, so that work.c finds the holder in a table. */
void lock_holder_index(lock_holder *holder, int db, RedisModuleString *name, int64_t now_us,
                       bool is_loaded, lease_name **shared) {
    if (holder->hold_id == LOCK_VALUE_STRAY) add(&stray_count, -1);
    lock_token token = {holder->token, holder->is_shared ? holder->token_length : 0};
    lock_holder_set_hold(holder,
                         leases_add(db, name, token, holder->lease_ms, now_us, is_loaded, shared));
}

void lock_holder_set_stray(lock_holder *holder) {
    holder->hold_id = LOCK_VALUE_STRAY;
    add(&stray_count, 1);
}

int64_t lock_value_lose(lock_value *value, int db, RedisModuleString *name) {
    int64_t lost = 0;
    if (!value->is_table && ((lock_holder *)value)->hold_id == 0) return 0; /* the usual case */
    lock_cursor cursor;
    lock_cursor_start(&cursor, value);
    for (lock_holder *each; (each = lock_cursor_next(&cursor)) != NULL;) {
        lease_ref hold = lock_holder_hold(each);
        ties_lose(hold, db, name, lock_holder_state(each).token, NULL);
        if (!leases_drop(hold)) continue;
        lock_holder_set_stray(each);
        lost++;
    }
    lock_cursor_stop(&cursor);
    return lost;
}

int64_t lock_value_index_strays(lock_value *value, int db, RedisModuleString *name, int64_t now_us,
                                bool is_loaded) {
    int64_t found = 0;
    bool is_copy = false;
    lease_name *shared = NULL;
    lock_cursor cursor;
    lock_cursor_start(&cursor, value);
    for (lock_holder *each; (each = lock_cursor_next(&cursor)) != NULL;)
        if (each->hold_id == LOCK_VALUE_STRAY) {
            if (found++ == 0) is_copy = !is_loaded && !server_has_slot(db, name);
            lock_holder_index(each, db, name, now_us, is_loaded, &shared);
            each->is_copy = is_copy;
        }
    lock_cursor_stop(&cursor);
    leases_release_name(shared);
    return found;
}

/* -- counters */

size_t lock_value_memory(lock_value *value) {
    size_t size = 0;
    if (value->is_table) {
        lock_table *table = (lock_table *)value;
        size = RedisModule_MallocSize(table) + RedisModule_MallocSizeDict(table->by_token) +
               RedisModule_MallocSize(table->ends.nodes);
    }
    lock_cursor cursor;
    lock_cursor_start(&cursor, value);
    for (lock_holder *each; (each = lock_cursor_next(&cursor)) != NULL;)
        size += RedisModule_MallocSize(allocation_of(each));
    lock_cursor_stop(&cursor);
    return size;
}

int64_t lock_value_count(void) {
    return get(&value_count);
}

int64_t lock_value_shared_count(void) {
    return get(&shared_count);
}

int64_t lock_value_all_holders(void) {
    return get(&value_count) + get(&further_count);
}

int64_t lock_value_stray_count(void) {
    return get(&stray_count);
}
