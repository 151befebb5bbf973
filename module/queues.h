/* SPDX-License-Identifier: BSD-3-Clause */
/* queues.h - the waiters of each lock, first come, first served.
 *
 * A queue knows places and times, but neither clients nor the meaning of a hold: blocked.c has
 * the client of each waiter, transition.c decides which waiter gets the lock. Main thread only. */
#ifndef DLOCK_QUEUES_H
#define DLOCK_QUEUES_H

#include "heap.h"
#include "lease_index.h"
#include "list.h"
#include "lock_state.h"
#include "redismodule.h"

typedef struct wait_queue wait_queue;

/* A place in a queue, and later the hold that was granted there. */
typedef struct wait_place {
    heap_node turn;    /* number of the arrival: who came first is first in line */
    wait_queue *queue; /* NULL after the waiter has left */
    struct wait_place *next_in_bucket;
    struct waiter *owner;
    RedisModuleString *name;
    lease_ref hold; /* only after a grant */
} wait_place;

/* What only a request for several names has (DLOCK.ACQUIREALL): its places after the first one. */
typedef struct further_places {
    struct waiter *owner;
    list_node node; /* in the list of those that may be served now */
    bool is_ready;
    wait_place places[];
} further_places;

/* A request that waits: in one queue, or in several with one arrival. Part of a larger struct in
 * blocked.c or session_waits.c. */
typedef struct waiter {
    heap_node end; /* end of the wait, on server_boot_us(); must be the first member */
    wait_place first;
    further_places *further; /* NULL: the request is for one name (DLOCK.ACQUIRE) */
    lock_request request;
    uint64_t client;
    int64_t parked_us;
    int32_t place_count;
    bool is_in_line; /* in all its queues; false while its session is away */
} waiter;

/* The names of a request, in the order of its command. */
typedef struct wait_names {
    int db;
    RedisModuleString **names;
    int count;
    bool is_all; /* of DLOCK.ACQUIREALL, also if there is one name */
} wait_names;

static inline wait_place *waiter_place(waiter *waiter, int i) {
    return i == 0 ? &waiter->first : &waiter->further->places[i - 1];
}

/* Must the request be served at several locks in one step? */
static inline bool waiter_is_for_all(const waiter *waiter) {
    return waiter->further != NULL;
}

/* All places for a name in a database. A queue exists only while clients wait. */
struct wait_queue {
    heap_node look; /* when to look at the lock again; must be the first member */
    int db;
    RedisModuleString *name;
    heap line;            /* the places in line */
    wait_place **buckets; /* all places, by token */
    uint32_t bucket_count;
    int64_t length; /* number of all places */
    list_node in_all;
    uint64_t checked; /* number of the last queues_check_all() seen */
};

void queues_init(void);

/* The queue for the name, or NULL. */
wait_queue *queues_find(int db, const RedisModuleString *name);

/* Appends a waiter, whose fields are filled in except for its places, to the queue of each name,
 * with one arrival. Makes queues where there are none. queues_forget() has to follow in the end. */
void queues_append(const wait_names *names, waiter *added);

/* The successor, with the same token, takes the places of the old waiter, which waits for the same
 * names, in line. The old waiter leaves. */
void queues_replace(waiter *old, const wait_names *names, waiter *successor);

/* Does the waiter wait for exactly these names? */
bool queues_has_names(waiter *waiting, const wait_names *names);

/* Removes the waiter from all its queues. A queue is freed with its last place. */
void queues_leave(waiter *left);

/* The same for a waiter that leaves without the lock. The next waiter may fit now: a shared one,
 * for example, that stood behind an exclusive one. Then the queue is marked. */
void queues_give_up(waiter *left);

/* The waiter leaves the lines, but its queues keep its places. A queue is marked if the next waiter
 * may have waited only for this one. */
void queues_step_aside(waiter *passed);

/* The waiter stands in its lines again, at its old places. */
void queues_step_back(waiter *returned);

/* A waiter that had left, and was not freed, gets its old places in the queues of its names again,
 * but is not in the lines: as after queues_step_aside(). */
void queues_rejoin(int db, waiter *returned);

/* May the user still send the command of the waiter? */
bool queues_is_permitted(waiter *waiting, RedisModuleString *user);

/* The waiter was granted the holds in its places, and was never told. */
void queues_abandon(waiter *granted);

/* Frees what the waiter has besides itself, after it has left. */
void queues_forget(waiter *left);

/* The waiter, which is for several names, is first in one of its lines, and that lock is free for
 * it: it may be served now. transition_all.c takes it before the running step is over. */
void queues_set_ready(waiter *ready);
waiter *queues_take_ready(void);
bool queues_have_ready(void);
static inline bool queues_is_ready(const waiter *waiting) {
    return waiter_is_for_all(waiting) && waiting->further->is_ready;
}

/* Is the waiter first in all its lines? */
bool queues_is_first_in_all(waiter *waiting);

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
/* Of all runs that waiters have asked for. */
int64_t queues_pending_fences(void);
int64_t queues_count(void);

#endif
