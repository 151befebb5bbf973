/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_value.h - a held lock as the value of a key. lock_type.c registers the data type. */
#ifndef DLOCK_LOCK_VALUE_H
#define DLOCK_LOCK_VALUE_H

#include "lease_index.h"
#include "lock_state.h"
#include "redismodule.h"

/* A hold_id: the value has lost its lease entry, but not by a DLOCK command. Redis frees most
 * such values soon, but RENAME and MOVE keep the value under another name. */
#define LOCK_VALUE_STRAY UINT64_MAX

/* One allocation per lock. */
typedef struct lock_value {
    uint64_t hold_id; /* with hold_slot: the entry among the leases; 0: none */
    int64_t fence;
    uint32_t hold_slot;
    uint32_t lease_ms;
    uint16_t token_length;
    bool is_over; /* the lease has ended, but the server was not allowed to end the lock */
    char token[];
} lock_value;

/* Registered by lock_type.c. */
extern RedisModuleType *lock_type;

/* state must be a lock. The caller owns the value until it is put into a key. */
lock_value *lock_value_new(const lock_state *state);

/* May run in a background thread: touches only the value and atomic counters. */
void lock_value_free(lock_value *value);

/* A view: the token points into value; left_us is 0, since only leases.h knows the end. */
lock_state lock_value_state(const lock_value *value);

static inline lease_ref lock_value_hold(const lock_value *value) {
    return (lease_ref){.id = value->hold_id, .slot = value->hold_slot};
}

static inline void lock_value_set_hold(lock_value *value, lease_ref hold) {
    value->hold_id = hold.id;
    value->hold_slot = hold.slot;
}

/* The value has lost its lease entry, and may live on under an unknown name. */
void lock_value_set_stray(lock_value *value);

/* Gives the value a lease entry under the given name; the lease starts at now_us. */
void lock_value_index(lock_value *value, int db, RedisModuleString *name, int64_t now_us);

/* The number of values: held, ended and not yet removed, or about to be freed. */
int64_t lock_value_count(void);
int64_t lock_value_stray_count(void);

#endif
