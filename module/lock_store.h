/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_store.h - a lock as a key of the database: open it, look at it, change it, close it.
 *
 * Nothing here decides; transition.c does. */
#ifndef DLOCK_LOCK_STORE_H
#define DLOCK_LOCK_STORE_H

#include "lock_state.h"
#include "redismodule.h"

typedef enum lock_access {
    LOCK_READ,
    LOCK_WRITE,
    LOCK_OVERWRITE, /* to write, and any other type may be lost: it shows as free */
} lock_access;

/* One open key and what is in it. */
typedef struct lock_entry {
    RedisModuleCtx *ctx;
    RedisModuleString **argv; /* the words of the running command, or NULL outside of one */
    RedisModuleString *name;
    int db;
    RedisModuleKey *key;
    RedisModuleCallReply *string; /* keeps the token of a plain string alive */
    bool is_held;
    lock_state held; /* meaningful while is_held */
} lock_entry;

/* Opens the key in the selected database. False: it is of another type, and was not opened.
 * True: close it with lock_store_close(). */
bool lock_store_open(lock_entry *entry, RedisModuleCtx *ctx, RedisModuleString *name,
                     lock_access access);
void lock_store_close(lock_entry *entry);

/* The state in the key, or NULL when it is free. Its expiry is LOCK_NO_EXPIRY until it is asked
 * for with lock_store_read_expiry(): a release does not need it, and it costs two look-ups. */
const lock_state *lock_store_held(const lock_entry *entry);
void lock_store_read_expiry(lock_entry *entry);

/* These need LOCK_WRITE and update entry->held. */
void lock_store_put(lock_entry *entry, const lock_state *state); /* over whatever is there */
void lock_store_renew(lock_entry *entry, int64_t lease_ms, int64_t expires_ms);
void lock_store_remove(lock_entry *entry);

#endif
