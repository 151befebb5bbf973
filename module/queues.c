/* SPDX-License-Identifier: BSD-3-Clause */
/* queues.c - see queues.h.
 *
 *   by_db      name -> queue, for each database
 *   buckets    token -> waiter, for each queue: the same token may wait again, or be released
 *   ends       when each wait ends (a heap)
 *   looks      when to look at each awaited lock again (a heap): Redis does not tell the module
 *              about the end of a plain string, or about an EXPIRE on a lock
 *   all        all queues; queues that have not seen the last queues_check_all() are in front */
#include "queues.h"

#include "server.h"
#include <stddef.h>
#include <string.h>

enum { BUCKETS_INITIAL = 4 };

static RedisModuleDict **by_db;
static int db_count;
static uint64_t hash_seed;
static heap ends, looks;
static list all;
static uint64_t last_queue_id, last_check;
static int64_t last_arrival, waiter_count, queue_count;

/* -- tokens */

/* FNV-1a with a random start, so that nobody can choose tokens that share a bucket. */
static waiter **bucket_of(const wait_queue *queue, lock_token token) {
    uint64_t hash = hash_seed;
    for (size_t i = 0; i < token.length; i++)
        hash = (hash ^ (unsigned char)token.bytes[i]) * UINT64_C(0x100000001b3);
    return &queue->buckets[(hash ^ hash >> 32) & (queue->bucket_count - 1)];
}

static void put_into_bucket(waiter *added) {
    waiter **bucket = bucket_of(added->queue, added->request.token);
    added->next_in_bucket = *bucket;
    *bucket = added;
}

/* A queue of n waiters has about n buckets. */
static void grow_buckets(wait_queue *queue) {
    waiter **old = queue->buckets;
    uint32_t old_count = queue->bucket_count;
    queue->bucket_count = old_count == 0 ? BUCKETS_INITIAL : old_count * 2;
    queue->buckets = RedisModule_Calloc(queue->bucket_count, sizeof(queue->buckets[0]));
    for (uint32_t i = 0; i < old_count; i++)
        for (waiter *each = old[i], *next; each != NULL; each = next) {
            next = each->next_in_bucket;
            put_into_bucket(each);
        }
    RedisModule_Free(old);
}

static void set_token(waiter *added) {
    if (added->queue->length >= added->queue->bucket_count) grow_buckets(added->queue);
    put_into_bucket(added);
}

static void forget_token(waiter *left) {
    waiter **place = bucket_of(left->queue, left->request.token);
    while (*place != left)
        place = &(*place)->next_in_bucket;
    *place = left->next_in_bucket;
}

waiter *queues_find_token(const wait_queue *queue, lock_token token) {
    waiter *found = *bucket_of(queue, token);
    while (found != NULL && (found->request.token.length != token.length ||
                             memcmp(found->request.token.bytes, token.bytes, token.length) != 0))
        found = found->next_in_bucket;
    return found;
}

/* -- queues */

void queues_init(void) {
    RedisModule_GetRandomBytes((unsigned char *)&hash_seed, sizeof(hash_seed));
}

wait_queue *queues_find(int db, const RedisModuleString *name) {
    if (queue_count == 0 || db >= db_count || by_db[db] == NULL) return NULL;
    return RedisModule_DictGet(by_db[db], (RedisModuleString *)name, NULL);
}

static wait_queue *make_queue(int db, RedisModuleString *name) {
    if (db >= db_count) {
        by_db = RedisModule_Realloc(by_db, sizeof(by_db[0]) * ((size_t)db + 1));
        memset(by_db + db_count, 0, sizeof(by_db[0]) * (size_t)(db + 1 - db_count));
        db_count = db + 1;
    }
    if (by_db[db] == NULL) by_db[db] = RedisModule_CreateDict(NULL);

    wait_queue *made = RedisModule_Calloc(1, sizeof(*made));
    made->db = db;
    made->name = RedisModule_HoldString(NULL, name);
    made->id = ++last_queue_id;
    made->look.key = SERVER_NEVER;
    heap_add(&looks, &made->look);
    made->checked = last_check;
    list_append(&all, &made->in_all);
    RedisModule_DictSet(by_db[db], made->name, made);
    queue_count++;
    return made;
}

static void free_queue(wait_queue *old) {
    RedisModule_DictDel(by_db[old->db], old->name, NULL);
    heap_remove(&looks, &old->look);
    list_remove(&all, &old->in_all);
    heap_release(old->line.nodes);
    RedisModule_Free(old->buckets);
    RedisModule_FreeString(NULL, old->name);
    RedisModule_Free(old);
    queue_count--;
}

static waiter *of_turn(heap_node *turn) {
    return turn == NULL ? NULL : (waiter *)((char *)turn - offsetof(waiter, turn));
}

static void join(wait_queue *joined, waiter *added, int64_t arrival) {
    added->queue = joined;
    added->turn.key = arrival;
    added->is_in_line = true;
    heap_add(&joined->line, &added->turn);
    heap_add(&ends, &added->end);
    set_token(added);
    server_alarm(added->end.key);
}

/* Takes the waiter out. The queue stays. */
static void part(waiter *left) {
    forget_token(left);
    if (left->is_in_line) heap_remove(&left->queue->line, &left->turn);
    heap_remove(&ends, &left->end);
    left->queue = NULL;
}

static wait_queue *find_or_make_queue(int db, RedisModuleString *name) {
    wait_queue *found = queues_find(db, name);
    return found != NULL ? found : make_queue(db, name);
}

void queues_append(int db, RedisModuleString *name, waiter *added) {
    wait_queue *joined = find_or_make_queue(db, name);
    join(joined, added, ++last_arrival);
    joined->length++;
    waiter_count++;
}

void queues_rejoin(int db, RedisModuleString *name, waiter *returned) {
    wait_queue *joined = find_or_make_queue(db, name);
    join(joined, returned, returned->turn.key);
    joined->length++;
    waiter_count++;
    queues_step_aside(returned);
}

void queues_replace(waiter *old, waiter *successor) {
    wait_queue *joined = old->queue;
    part(old);
    join(joined, successor, old->turn.key);
}

void queues_leave(waiter *left) {
    wait_queue *queue = left->queue;
    part(left);
    queue->length--;
    waiter_count--;
    if (queue->length == 0) free_queue(queue);
}

/* The new first one may have waited only for the old one, which has left the line. */
static void mark_for_next(wait_queue *queue) {
    const waiter *first = queues_first(queue);
    if (first != NULL && first->request.is_shared) queues_mark(queue);
}

void queues_step_aside(waiter *passed) {
    bool was_first = queues_first(passed->queue) == passed;
    heap_remove(&passed->queue->line, &passed->turn);
    passed->is_in_line = false;
    if (was_first) mark_for_next(passed->queue);
}

void queues_step_back(waiter *returned) {
    wait_queue *queue = returned->queue;
    heap_add(&queue->line, &returned->turn);
    returned->is_in_line = true;
    if (queues_first(queue) == returned) queues_mark(queue);
}

void queues_give_up(waiter *left) {
    wait_queue *queue = left->queue;
    bool was_first = queues_first(queue) == left;
    bool was_last = queue->length == 1;
    queues_leave(left);
    if (was_first && !was_last) mark_for_next(queue);
}

waiter *queues_first_end(void) {
    return (waiter *)heap_first(&ends);
}

waiter *queues_first(const wait_queue *queue) {
    return of_turn(heap_first(&queue->line));
}

size_t queues_list(const wait_queue *queue, size_t max, waiter **found) {
    heap_node **turns = (heap_node **)found;
    size_t count = heap_lowest(&queue->line, max, turns);
    for (size_t i = 0; i < count; i++)
        found[i] = of_turn(turns[i]);
    return count;
}

/* -- looks */

void queues_set_look(wait_queue *queue, int64_t due_us) {
    heap_remove(&looks, &queue->look);
    queue->look.key = due_us;
    heap_add(&looks, &queue->look);
    server_alarm(due_us);
}

void queues_mark(wait_queue *queue) {
    int64_t now_us = server_boot_us();
    if (queue->look.key > now_us) queues_set_look(queue, now_us);
    server_alarm(0);
}

void queues_check_all(void) {
    last_check++;
    if (queue_count > 0) server_alarm(0);
}

wait_queue *queues_first_due(int64_t now_us) {
    wait_queue *first = (wait_queue *)heap_first(&looks);
    if (first != NULL && first->look.key <= now_us) return first;
    first = LIST_OBJECT(all.first, wait_queue, in_all);
    return first != NULL && first->checked != last_check ? first : NULL;
}

void queues_set_looked(wait_queue *queue) {
    queue->checked = last_check;
    list_remove(&all, &queue->in_all);
    list_append(&all, &queue->in_all);
    queues_set_look(queue, SERVER_NEVER);
}

int64_t queues_next_look(void) {
    const heap_node *first = heap_first(&looks);
    return first == NULL ? SERVER_NEVER : first->key;
}

int64_t queues_waiter_count(void) {
    return waiter_count;
}

int64_t queues_count(void) {
    return queue_count;
}
