/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_value.c - see lock_value.h. */
#include "lock_value.h"

#include "leases.h"
#include <stddef.h>
#include <string.h>

RedisModuleType *lock_type;
static int64_t value_count, stray_count;

static void add(int64_t *counter, int64_t change) {
    __atomic_add_fetch(counter, change, __ATOMIC_RELAXED);
}

lock_value *lock_value_new(const lock_state *state) {
    lock_value *value = RedisModule_Alloc(offsetof(lock_value, token) + state->token.length);
    value->hold_id = 0;
    value->hold_slot = 0;
    value->fence = state->fence;
    value->lease_ms = (uint32_t)state->lease_ms;
    value->is_over = false;
    value->token_length = (uint16_t)state->token.length;
    memcpy(value->token, state->token.bytes, state->token.length);
    add(&value_count, 1);
    return value;
}

void lock_value_free(lock_value *value) {
    if (value->hold_id == LOCK_VALUE_STRAY) add(&stray_count, -1);
    add(&value_count, -1);
    RedisModule_Free(value);
}

lock_state lock_value_state(const lock_value *value) {
    return (lock_state){
        .kind = LOCK_KIND_LOCK,
        .token = {value->token, value->token_length},
        .fence = value->fence,
        .lease_ms = value->lease_ms,
    };
}

void lock_value_set_stray(lock_value *value) {
    value->hold_id = LOCK_VALUE_STRAY;
    add(&stray_count, 1);
}

void lock_value_index(lock_value *value, int db, RedisModuleString *name, int64_t now_us) {
    if (value->hold_id == LOCK_VALUE_STRAY) add(&stray_count, -1);
    lock_value_set_hold(value, leases_add(db, name, value->lease_ms, now_us));
}

int64_t lock_value_count(void) {
    return __atomic_load_n(&value_count, __ATOMIC_RELAXED);
}

int64_t lock_value_stray_count(void) {
    return __atomic_load_n(&stray_count, __ATOMIC_RELAXED);
}
