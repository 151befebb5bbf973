/* SPDX-License-Identifier: BSD-3-Clause */
/* update.h - read, modify, write on a value in Redis, in three ways.
 *
 * The value is the id of the last update. Each update has an id of its own, and is recorded with
 * the id that it has read before. So the checker can walk from the last value back to the first:
 * an update that was acknowledged and is not on this path is lost. An update whose reply never came
 * needs no guess: it took effect if and only if it is on the path. */
#pragma once

#include "dlock.h"
#include "history.h"

#include <stdbool.h>

struct redisContext;

typedef enum update_way {
    UPDATE_BARE,  /* GET, SET: the lock alone protects the value */
    UPDATE_FENCE, /* the value remembers the largest fence, and refuses smaller ones */
    UPDATE_GUARD  /* dlock_guarded(): Redis checks the lock in the same step as it writes */
} update_way;

typedef enum update_result {
    UPDATE_DONE = 0,
    UPDATE_REFUSED = 1,  /* the value was not changed, and will not be */
    UPDATE_IN_DOUBT = 2, /* no reply: may have been done, or may be done later */
    UPDATE_NOT_BEGUN = 3 /* the value could not be read, or the lock was no longer held */
} update_result;

/* One per thread. */
typedef struct store {
    const char *host;
    int port;
    struct redisContext *connection; /* NULL: to be opened */
    uint64_t last_id;
} store;

typedef struct update {
    update_way way;
    unsigned thread;
    uint32_t name;
    const char *data_key;
    uint64_t fence;   /* only for UPDATE_FENCE */
    dlock_lock *lock; /* only for UPDATE_GUARD */
    /* Of UPDATE_GUARD: DLOCK.GUARD over a connection of the program's own, without a look at any
     * clock, as by a client in another language. Then the server alone refuses. */
    bool is_raw;
    const char *lock_key;
    /* How long the program computes between its read and its write. */
    int64_t work_ns;
    /* Asked once, after the read: does the program still hold the lock, as far as it can know? */
    bool (*is_held)(void *arg);
    void *arg;
} update;

/* The ids of a store's updates begin with process and thread, so no two stores share an id. */
void store_init(store *store, const char *host, int port, unsigned process, unsigned thread);
void store_close(store *store);

update_result store_update(store *store, const update *update);

/* A guarded write, and how long a program computes before it. */
update_result update_guarded(dlock_lock *lock, size_t argc, const char **argv);
void update_work(int64_t work_ns);

/* Over the store's own connection: a write, and the value of a key ("": there is none). */
update_result store_write(store *store, int argc, const char **argv);
bool store_get(store *store, const char *key, char *value, size_t size);
