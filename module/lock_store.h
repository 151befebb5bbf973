/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_store.h - a lock as a key of the database: open it, look at it, change it, close it.
 *
 * Nothing here decides; transition.c does. */
#ifndef DLOCK_LOCK_STORE_H
#define DLOCK_LOCK_STORE_H

#include "lease_index.h"
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
    int argc;
    RedisModuleString *name;
    int db;
    int64_t now_us; /* on server_boot_us(): when it was opened */
    RedisModuleKey *key;
    bool is_held;
    lock_state held; /* these two have a meaning while is_held */
    lease_ref hold;
} lock_entry;

/* Opens the key in the selected database. False: it is of another type, and was not opened.
 * True: close it with lock_store_close(). */
bool lock_store_open(lock_entry *entry, RedisModuleCtx *ctx, RedisModuleString *name,
                     lock_access access);
void lock_store_close(lock_entry *entry);

/* The state in the key, or NULL when it is free. */
const lock_state *lock_store_held(const lock_entry *entry);

/* How long a plain string lives on, or -1 for ever; the same for the operator's EXPIRE on a
 * lock. */
int64_t lock_store_key_ttl_ms(const lock_entry *entry);

/* These need LOCK_WRITE and update the entry. */
void lock_store_put(lock_entry *entry, const lock_state *state); /* over whatever is there */
void lock_store_renew(lock_entry *entry, int64_t lease_ms);
void lock_store_set_fence(lock_entry *entry, int64_t fence);
void lock_store_renew_hold(lock_entry *entry); /* under a new id */

/* The lease has ended, but the lock stays for now; asks again about it then. */
void lock_store_set_over(lock_entry *entry, int64_t again_us);

void lock_store_set_string_ttl(lock_entry *entry, int64_t expires_ms);
void lock_store_remove(lock_entry *entry);

#endif
