/* SPDX-License-Identifier: BSD-3-Clause */
/* queues.h - the waiters of each lock, first come, first served.
 *
 * A queue knows places and times, but neither clients nor the meaning of a hold: blocked.c has
 * the client of each waiter, transition.c decides which waiter gets the lock. Main thread only. */
#ifndef DLOCK_QUEUES_H
#define DLOCK_QUEUES_H

#include "deadlines.h"
#include "lock_state.h"
#include "redismodule.h"

typedef struct wait_queue wait_queue;

/* A place in a queue. Part of a larger struct in blocked.c. */
typedef struct waiter {
    deadline end; /* end of the wait, on server_boot_us(); must be the first member */
    struct waiter *prev, *next;
    wait_queue *queue; /* NULL after the waiter has left */
    lock_request request;
    uint64_t client;
    int64_t parked_us;
} waiter;

/* All waiters for a name in a database. A queue exists only while clients wait. */
struct wait_queue {
    deadline look; /* when to look at the lock again; must be the first member */
    int db;
    RedisModuleString *name;
    uint64_t id; /* unique; never used again */
    waiter *first, *last;
    int64_t length;
    bool is_dirty;                           /* the first waiter may get the lock */
    wait_queue *dirty_prev, *dirty_next;     /* list of dirty queues */
    wait_queue *checked_prev, *checked_next; /* list of all queues, longest unchecked first */
    uint64_t checked;                        /* number of the last queues_check_all() seen */
};

void queues_init(void);

/* The queue for the name, or NULL. */
wait_queue *queues_find(int db, const RedisModuleString *name);

/* Appends a waiter, whose fields are filled in. Makes the queue if there is none. */
void queues_append(int db, RedisModuleString *name, waiter *added);

/* The successor, with the same token, takes the place of the old waiter. The old waiter leaves. */
void queues_replace(waiter *old, waiter *successor);

/* Removes the waiter from its queue. The queue is freed with the last waiter. */
void queues_leave(waiter *left);

/* The same for a waiter that has not got the lock: the next one may have waited only for it, so
 * the queue is marked. */
void queues_give_up(waiter *left);

/* The waiter with the token, or NULL. The cost does not depend on the number of waiters. */
waiter *queues_find_token(const wait_queue *queue, lock_token token);

/* The waiter whose wait ends first, or NULL. */
waiter *queues_first_end(void);

/* The first waiter may get the lock now: the queue is dirty until work.c has settled it. */
void queues_mark(wait_queue *dirty);
void queues_unmark(wait_queue *clean);
wait_queue *queues_first_dirty(void);

/* Any lock may have changed: every queue has to be settled once. The call itself is cheap. */
void queues_check_all(void);
wait_queue *queues_first_unchecked(void);
void queues_set_checked(wait_queue *checked);

/* Look at the lock again at due_us, on server_boot_us(). */
void queues_set_look(wait_queue *queue, int64_t due_us);
wait_queue *queues_first_look(void);

int64_t queues_waiter_count(void);
int64_t queues_count(void);

#endif
