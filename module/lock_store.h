/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_store.h - a lock as a key of the database: open, read, change, close.
 *
 * The store does not decide; transition.c does. */
#ifndef DLOCK_LOCK_STORE_H
#define DLOCK_LOCK_STORE_H

#include "lease_index.h"
#include "lock_state.h"
#include "lock_value.h"
#include "redismodule.h"

typedef enum lock_access {
    LOCK_READ,
    LOCK_WRITE,
    LOCK_OVERWRITE, /* for writing; other types count as free and are lost */
} lock_access;

/* All keyspace events there are: acquire, release, extend, handover, expire. */
enum { LOCK_EVENTS_MAX = 5 };

/* An open key and its value. */
typedef struct lock_entry {
    RedisModuleCtx *ctx;
    RedisModuleString **argv; /* arguments of the running command; NULL outside of a command */
    int argc;
    RedisModuleString *name;
    int db;
    int64_t now_us;        /* when the key was opened, on server_boot_us() */
    const void *permitted; /* for transition.c: the waiter whose permissions it has checked */
    RedisModuleKey *key;
    bool is_held;
    bool is_changed;
    lock_value *value; /* NULL: the lock is free, or a string */
    /* One holder: the only one, or the one that lock_store_find() or lock_store_next() has found.
     * The token of held is empty, and holder is NULL, if a lock has several holders and none was
     * found. Valid only while is_held. */
    lock_holder *holder;
    lock_state held;
    lease_ref hold;
    struct {
        const char *name;
        int64_t count;
    } events[LOCK_EVENTS_MAX]; /* to send when the key is closed, each kind as often as counted */
    int event_count;
    lease_name *shared; /* of a lock with shared holders, if a lease has started; else NULL */
} lock_entry;

/* Opens the key in the selected database. False: the key has another type, and was not opened.
 * True: lock_store_close() has to follow. */
bool lock_store_open(lock_entry *entry, RedisModuleCtx *ctx, RedisModuleString *name,
                     lock_access access);
void lock_store_close(lock_entry *entry);

/* The two halves of lock_store_close(), for several keys: all of them are closed before the first
 * event is sent. */
void lock_store_close_key(lock_entry *entry);
void lock_store_tell(lock_entry *entry);

/* Sends a keyspace event once the key is closed: another module that listens may change the key. */
void lock_store_notify(lock_entry *entry, const char *event);

/* The state of the lock, or NULL if the lock is free. */
const lock_state *lock_store_held(const lock_entry *entry);

/* Does the token hold the lock? Then its holder is the one in the entry. */
bool lock_store_find(lock_entry *entry, lock_token token);

/* Goes on to the next holder of a lock. False: there are no more. */
bool lock_store_next(lock_entry *entry, lock_cursor *cursor);

static inline int64_t lock_store_holder_count(const lock_entry *entry) {
    return entry->value == NULL ? entry->is_held : lock_value_holder_count(entry->value);
}

/* May a lease of one of several holders have ended? */
bool lock_store_may_be_over(const lock_entry *entry);

/* Finds one of several holders whose lease has ended, which is the one in the entry then. False:
 * there is none. Each holder that is looked at lowers *looks; at 0, the search ends. */
bool lock_store_find_over(lock_entry *entry, int *looks);

/* The rest of the key's TTL, or -1 without a TTL: a plain string may have a TTL, and a lock on
 * which an operator has used EXPIRE. */
int64_t lock_store_key_ttl_ms(const lock_entry *entry);

/* The functions below change the key, which must be open with LOCK_WRITE, and update the entry.
 * put and join add a holder, which is then the one in the entry. The others change the one in the
 * entry. */
void lock_store_put(lock_entry *entry, const lock_state *state);  /* replaces all other holders */
void lock_store_join(lock_entry *entry, const lock_state *state); /* both must be shared */
void lock_store_renew(lock_entry *entry, int64_t lease_ms);
void lock_store_set_fence(lock_entry *entry, int64_t fence);
void lock_store_renew_hold(lock_entry *entry); /* gives the hold a new id */

/* The slot of the lock is another server's, which goes on with the hold. The lease starts anew when
 * the slot is here. */
void lock_store_set_copy(lock_entry *entry);

/* The lease has ended, but the slot of the lock is another server's, and the holder stays for now.
 * The lease is due again at again_us, and starts anew if the slot is here by then. */
void lock_store_set_over(lock_entry *entry, int64_t again_us);

void lock_store_set_string_ttl(lock_entry *entry, int64_t expires_ms);

/* Without holders the key goes. If one holder is left, it is the one in the entry. */
void lock_store_remove(lock_entry *entry);

#endif
