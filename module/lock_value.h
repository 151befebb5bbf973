/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_value.h - a held lock as the value of a key. lock_type.c registers the data type.
 *
 * The value has one of two forms, which begin with the same member:
 *
 *   a holder   the only holder of the lock, exclusive or shared: one allocation
 *   a table    two or more shared holders, each in an allocation of its own
 *
 * A table that is left with one holder becomes that holder again. */
#ifndef DLOCK_LOCK_VALUE_H
#define DLOCK_LOCK_VALUE_H

#include "heap.h"
#include "lease_index.h"
#include "leases.h"
#include "lock_state.h"
#include "redismodule.h"

/* A hold_id: the holder has lost its lease entry, but not by a DLOCK command. Redis frees most
 * such values soon, but RENAME and MOVE keep the value under another name. */
#define LOCK_VALUE_STRAY UINT64_MAX

typedef struct lock_value {
    bool is_table;
} lock_value;

typedef struct lock_holder {
    lock_value head; /* must be the first member */
    bool is_shared : 1;
    bool is_over : 1; /* the lease has ended, but the server was not allowed to end the hold */
    bool is_copy : 1; /* came before the slot of the lock, whose owner may go on with the hold */
    uint16_t token_length;
    uint32_t lease_ms;
    uint64_t hold_id; /* with hold_slot: the entry among the leases; 0: none */
    int64_t fence;
    uint32_t hold_slot;
    char token[];
} lock_holder;

/* Each holder has a node in the heap, with a time before which its lease does not end. An extension
 * does not change the node: lock_store_find_over() corrects it when the time has come. */
typedef struct lock_table {
    lock_value head; /* must be the first member */
    int64_t count;
    int64_t newest_fence; /* the highest that a holder has had, also one that has left */
    heap ends;
    RedisModuleDict *by_token; /* token -> lock_holder */
} lock_table;

/* The node of a shared holder stands in front of it, in the same allocation. */
static inline heap_node *lock_holder_node(lock_holder *holder) {
    return (heap_node *)(void *)holder - 1;
}

static inline lock_holder *lock_holder_of(heap_node *node) {
    return (lock_holder *)(void *)(node + 1);
}

/* Registered by lock_type.c. */
extern RedisModuleType *lock_type;

/* state must be a lock, whose lease starts at now_us or later. The caller owns the value until it
 * is put into a key. */
lock_holder *lock_value_new(const lock_state *state, int64_t now_us);

/* Adds a holder, whose token holds the lock not yet. Returns the value with both: another value
 * than before if the lock had one holder. */
lock_value *lock_value_add(lock_value *value, lock_holder *added);

/* Removes and frees one of several holders. Returns the value without the holder: another value
 * than before if one holder is left. */
lock_value *lock_value_remove(lock_value *value, lock_holder *removed);

/* May run in a background thread: touches only the value and atomic counters. */
void lock_value_free(lock_value *value);

static inline int64_t lock_value_holder_count(const lock_value *value) {
    return value->is_table ? ((const lock_table *)value)->count : 1;
}

/* The lease of one of several holders does not end before end_us. */
void lock_value_set_end(lock_table *table, lock_holder *holder, int64_t end_us);

void lock_value_set_fence(lock_value *value, lock_holder *holder, int64_t fence);

/* Together with the number of holders, this tells whether the holders are still the same. */
int64_t lock_value_newest_fence(const lock_value *value);

/* The holder with the token, or NULL. */
lock_holder *lock_value_find(lock_value *value, lock_token token);

bool lock_value_is_shared(const lock_value *value);

/* Visits every holder: start, next until NULL, stop. No holder may be added or removed in between.
 */
typedef struct lock_cursor {
    lock_holder *only; /* the next holder of a value without a table */
    RedisModuleDictIter *iterator;
} lock_cursor;
void lock_cursor_start(lock_cursor *cursor, lock_value *value);
lock_holder *lock_cursor_next(lock_cursor *cursor);
void lock_cursor_stop(lock_cursor *cursor);

/* A view: the token points into the holder; left_us is 0, since only leases.h knows the end. */
lock_state lock_holder_state(const lock_holder *holder);

static inline lease_ref lock_holder_hold(const lock_holder *holder) {
    return (lease_ref){.id = holder->hold_id, .slot = holder->hold_slot};
}

static inline void lock_holder_set_hold(lock_holder *holder, lease_ref hold) {
    holder->hold_id = hold.id;
    holder->hold_slot = hold.slot;
}

/* Gives the holder a lease entry under the given name; the lease starts at now_us. is_loaded and
 * shared: see leases_add(). */
void lock_holder_index(lock_holder *holder, int db, RedisModuleString *name, int64_t now_us,
                       bool is_loaded, lease_name **shared);

/* The holder has no lease entry, and nobody knows the name of the lock yet. */
void lock_holder_set_stray(lock_holder *holder);

/* The key has lost the value, which may live on under an unknown name: every holder with a lease
 * entry becomes a stray. Returns how many. */
int64_t lock_value_lose(lock_value *value, int db, RedisModuleString *name);

/* The value was found under this name: gives lease entries to all strays among the holders. Returns
 * how many. */
int64_t lock_value_index_strays(lock_value *value, int db, RedisModuleString *name, int64_t now_us,
                                bool is_loaded);

size_t lock_value_memory(lock_value *value);

/* The number of locks (held, ended and not yet removed, or about to be freed), of shared ones among
 * them, and of holders. */
int64_t lock_value_count(void);
int64_t lock_value_shared_count(void);
int64_t lock_value_all_holders(void);
int64_t lock_value_stray_count(void);

#endif
