/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_type.h - the data type behind a held lock: how it lives in memory, in files and in
 * digests. */
#ifndef DLOCK_LOCK_TYPE_H
#define DLOCK_LOCK_TYPE_H

#include "lock_state.h"
#include "redismodule.h"

/* One allocation per lock. The expiry is not in it: it is the key's own TTL. */
typedef struct lock_value {
    int64_t fence;
    int64_t since_ms;
    uint32_t lease_ms;
    uint16_t token_length;
    char token[];
} lock_value;

extern RedisModuleType *lock_type;

int lock_type_register(RedisModuleCtx *ctx);

/* state must be a lock. The value belongs to the caller until it is put into a key. */
lock_value *lock_value_new(const lock_state *state);
void lock_value_free(lock_value *value);

/* A view: the token points into value; expires_ms is LOCK_NO_EXPIRY, since only the key knows. */
lock_state lock_value_state(const lock_value *value);

/* How many lock values exist: held, or expired and not yet removed. */
int64_t lock_value_count(void);

#endif
