/* SPDX-License-Identifier: BSD-3-Clause */
/* queues.h - who waits for which lock, first come, first served.
 *
 * Knows places and times, neither clients nor what holding a lock means: blocked.c has the client
 * behind each waiter, transition.c decides who gets the lock. Main thread only. */
#ifndef DLOCK_QUEUES_H
#define DLOCK_QUEUES_H

#include "deadlines.h"
#include "lock_state.h"
#include "redismodule.h"

typedef struct wait_queue wait_queue;

/* One place in a queue. Part of a larger struct of blocked.c. */
typedef struct waiter {
    deadline end; /* of the wait, on server_boot_us(); must be the first member */
    struct waiter *prev, *next;
    wait_queue *queue; /* NULL once it has left */
    lock_request request;
    uint64_t client;
    int64_t parked_us;
} waiter;

/* All who wait for one name in one database. Exists only while somebody waits. */
struct wait_queue {
    deadline look; /* when to look at the lock again; must be the first member */
    int db;
    RedisModuleString *name;
    uint64_t id; /* no other queue has it, ever */
    waiter *first, *last;
    int64_t length;
    bool is_dirty;                           /* the lock may have become free */
    wait_queue *dirty_prev, *dirty_next;     /* among the dirty */
    wait_queue *checked_prev, *checked_next; /* among all, the longest unchecked first */
    uint64_t checked;                        /* the last queues_check_all() it has seen */
};

void queues_init(void);

/* The queue for this name, or NULL. */
wait_queue *queues_find(int db, const RedisModuleString *name);

/* Appends a waiter whose fields are filled in; the queue is made if need be. */
void queues_append(int db, RedisModuleString *name, waiter *added);

/* The new waiter, with the same token, takes the place of the old one, which leaves. */
void queues_replace(waiter *old, waiter *successor);

/* Out of its queue, which goes with its last waiter. */
void queues_leave(waiter *left);

/* The waiter with this token, or NULL. Does not depend on how many wait. */
waiter *queues_find_token(const wait_queue *queue, lock_token token);

/* The waiter whose wait ends first, or NULL. */
waiter *queues_first_end(void);

/* The lock of this queue may have become free: it is among the dirty ones until it is settled. */
void queues_mark(wait_queue *dirty);
void queues_unmark(wait_queue *clean);
wait_queue *queues_first_dirty(void);

/* Anything may have happened to any lock: every queue is to be settled once. Costs nothing now. */
void queues_check_all(void);
wait_queue *queues_first_unchecked(void);
void queues_set_checked(wait_queue *checked);

/* Look at the lock again at that time, on server_boot_us(). */
void queues_set_look(wait_queue *queue, int64_t due_us);
wait_queue *queues_first_look(void);

int64_t queues_waiter_count(void);
int64_t queues_count(void);

#endif
