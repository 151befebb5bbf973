/* SPDX-License-Identifier: BSD-3-Clause */
/* queues.h - the waiters of each lock, first come, first served.
 *
 * A queue knows places and times, but neither clients nor the meaning of a hold: blocked.c has
 * the client of each waiter, transition.c decides which waiter gets the lock. Main thread only. */
#ifndef DLOCK_QUEUES_H
#define DLOCK_QUEUES_H

#include "heap.h"
#include "list.h"
#include "lock_state.h"
#include "redismodule.h"

typedef struct wait_queue wait_queue;

/* A place in a queue. Part of a larger struct in blocked.c or session_waits.c. */
typedef struct waiter {
    heap_node end;     /* end of the wait, on server_boot_us(); must be the first member */
    heap_node turn;    /* number of the arrival: who came first is first in line */
    wait_queue *queue; /* NULL after the waiter has left */
    struct waiter *next_in_bucket;
    lock_request request;
    uint64_t client;
    int64_t parked_us;
    bool is_in_line; /* false while its session is away */
} waiter;

/* All waiters for a name in a database. A queue exists only while clients wait. */
struct wait_queue {
    heap_node look; /* when to look at the lock again; must be the first member */
    int db;
    RedisModuleString *name;
    uint64_t id;      /* unique; never used again */
    heap line;        /* the waiters in line */
    waiter **buckets; /* all waiters, by token */
    uint32_t bucket_count;
    int64_t length; /* number of all waiters */
    list_node in_all;
    uint64_t checked; /* number of the last queues_check_all() seen */
};

void queues_init(void);

/* The queue for the name, or NULL. */
wait_queue *queues_find(int db, const RedisModuleString *name);

/* Appends a waiter, whose fields are filled in. Makes the queue if there is none. */
void queues_append(int db, RedisModuleString *name, waiter *added);

/* The successor, with the same token, takes the place of the old waiter, in line. The old waiter
 * leaves. */
void queues_replace(waiter *old, waiter *successor);

/* Removes the waiter from its queue. The queue is freed with the last waiter. */
void queues_leave(waiter *left);

/* The same for a waiter that leaves without the lock. The next waiter may fit now: a shared one,
 * for example, that stood behind an exclusive one. Then the queue is marked. */
void queues_give_up(waiter *left);

/* The waiter leaves the line and keeps its place (the queue is marked if the next one may have
 * waited only for it); comes back to its place; comes back to the queue
 * that it has left, with its old place, but not to the line. */
void queues_step_aside(waiter *passed);
void queues_step_back(waiter *returned);
void queues_rejoin(int db, RedisModuleString *name, waiter *returned);

/* The waiter with the token, or NULL. The cost does not depend on the number of waiters. */
waiter *queues_find_token(const wait_queue *queue, lock_token token);

/* The waiter whose wait ends first, or NULL. */
waiter *queues_first_end(void);

/* The waiter that is first in line, or NULL. */
waiter *queues_first(const wait_queue *queue);

/* Puts the first waiters in line into found: at most max. Returns how many. */
size_t queues_list(const wait_queue *queue, size_t max, waiter **found);

/* Look at the lock again at due_us, on server_boot_us(); a due time in the past means soon. */
void queues_set_look(wait_queue *queue, int64_t due_us);

/* The first waiter may get the lock now: look at the lock soon. */
void queues_mark(wait_queue *queue);

/* Any lock may have changed: look at every lock once, soon. The call itself is cheap. */
void queues_check_all(void);

/* A queue whose lock has to be looked at by now, or NULL. */
wait_queue *queues_first_due(int64_t now_us);

/* The lock of the queue has been looked at, and is not looked at again until it is set so. */
void queues_set_looked(wait_queue *queue);

/* When the next lock has to be looked at, on server_boot_us(), or SERVER_NEVER. */
int64_t queues_next_look(void);

int64_t queues_waiter_count(void);
int64_t queues_count(void);

#endif
