/* SPDX-License-Identifier: BSD-3-Clause */
/* queues.c - see queues.h.
 *
 *   by_db      name -> queue, for each database
 *   buckets    token -> place, for each queue: the same token may wait again, or be released
 *   ends       when each wait ends (a heap)
 *   looks      when to look at each awaited lock again (a heap): Redis does not tell the module
 *              about the end of a plain string, or about an EXPIRE on a lock
 *   all        all queues; queues that have not seen the last queues_check_all() are in front
 *   ready      waiters for several names that may be served now
 *
 * A waiter for several names has a place in each of their queues, all with one number of arrival.
 * It joins, leaves, steps aside and comes back in all of them at once. While it is first in a line
 * and waits for another of its locks, it blocks the line, even if the lock there is free: whoever
 * came first is first everywhere. So two such waiters never wait for each other. If one of them is
 * blocked by another waiter, that one came earlier, and the earliest waiter of all is blocked by
 * holders only. */
#include "queues.h"

#include "dict.h"
#include "server.h"
#include "ties.h"
#include <stddef.h>
#include <string.h>

enum { BUCKETS_INITIAL = 4 };

static RedisModuleDict **by_db;
static int db_count;
static uint64_t hash_seed;
static heap ends, looks;
static list all, ready;
static uint64_t last_check;
static int64_t last_arrival, waiter_count, queue_count, pending_fences;

/* -- tokens */

/* FNV-1a with a random start, so that nobody can choose tokens that share a bucket. */
static wait_place **bucket_of(const wait_queue *queue, lock_token token) {
    uint64_t hash = hash_seed;
    for (size_t i = 0; i < token.length; i++)
        hash = (hash ^ (unsigned char)token.bytes[i]) * UINT64_C(0x100000001b3);
    return &queue->buckets[(hash ^ hash >> 32) & (queue->bucket_count - 1)];
}

static void put_into_bucket(wait_place *added) {
    wait_place **bucket = bucket_of(added->queue, added->owner->request.token);
    added->next_in_bucket = *bucket;
    *bucket = added;
}

/* A queue of n places has about n buckets. */
static void grow_buckets(wait_queue *queue) {
    wait_place **old = queue->buckets;
    uint32_t old_count = queue->bucket_count;
    queue->bucket_count = old_count == 0 ? BUCKETS_INITIAL : old_count * 2;
    queue->buckets = RedisModule_Calloc(queue->bucket_count, sizeof(queue->buckets[0]));
    for (uint32_t i = 0; i < old_count; i++)
        for (wait_place *each = old[i], *next; each != NULL; each = next) {
            next = each->next_in_bucket;
            put_into_bucket(each);
        }
    RedisModule_Free(old);
}

static void set_token(wait_place *added) {
    if (added->queue->length >= added->queue->bucket_count) grow_buckets(added->queue);
    put_into_bucket(added);
}

static void forget_token(wait_place *left) {
    wait_place **link = bucket_of(left->queue, left->owner->request.token);
    while (*link != left)
        link = &(*link)->next_in_bucket;
    *link = left->next_in_bucket;
}

waiter *queues_find_token(const wait_queue *queue, lock_token token) {
    const wait_place *found = *bucket_of(queue, token);
    while (found != NULL && !lock_is_token(found->owner->request.token, token))
        found = found->next_in_bucket;
    return found == NULL ? NULL : found->owner;
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
    made->look.key = SERVER_NEVER;
    heap_add(&looks, &made->look);
    made->checked = last_check;
    list_append(&all, &made->in_all);
    RedisModule_DictSet(by_db[db], made->name, made);
    queue_count++;
    return made;
}

static void free_queue(wait_queue *old) {
    dict_forget_name(&by_db[old->db], old->name);
    heap_remove(&looks, &old->look);
    list_remove(&all, &old->in_all);
    heap_release(old->line.nodes);
    RedisModule_Free(old->buckets);
    RedisModule_FreeString(NULL, old->name);
    RedisModule_Free(old);
    queue_count--;
}

static wait_place *of_turn(heap_node *turn) {
    return turn == NULL ? NULL : (wait_place *)((char *)turn - offsetof(wait_place, turn));
}

static wait_queue *find_or_make_queue(int db, RedisModuleString *name) {
    wait_queue *found = queues_find(db, name);
    return found != NULL ? found : make_queue(db, name);
}

/* -- places */

static void make_places(waiter *added, const wait_names *names) {
    size_t further = (size_t)names->count - 1;
    added->place_count = names->count;
    if (names->is_all) {
        added->further =
            RedisModule_Calloc(1, sizeof(further_places) + further * sizeof(wait_place));
        added->further->owner = added;
    }
    for (int i = 0; i < names->count; i++) {
        waiter_place(added, i)->owner = added;
        waiter_place(added, i)->queue = find_or_make_queue(names->db, names->names[i]);
        waiter_place(added, i)->name =
            RedisModule_HoldString(NULL, waiter_place(added, i)->queue->name);
    }
}

/* The queues of its places are known. */
static void join(waiter *added, int64_t arrival) {
    for (int i = 0; i < added->place_count; i++) {
        wait_place *each = waiter_place(added, i);
        each->turn.key = arrival;
        heap_add(&each->queue->line, &each->turn);
        set_token(each);
        each->queue->length++;
    }
    waiter_count += added->place_count;
    pending_fences += added->request.fences;
    added->is_in_line = true;
    heap_add(&ends, &added->end);
    server_alarm(added->end.key);
}

static void unset_ready(waiter *waiting) {
    if (!queues_is_ready(waiting)) return;
    waiting->further->is_ready = false;
    list_remove(&ready, &waiting->further->node);
}

/* Takes the waiter out. The queues stay, and its places know them still. */
static void part(waiter *left) {
    for (int i = 0; i < left->place_count; i++) {
        wait_place *each = waiter_place(left, i);
        forget_token(each);
        if (left->is_in_line) heap_remove(&each->queue->line, &each->turn);
        each->queue->length--;
    }
    waiter_count -= left->place_count;
    pending_fences -= left->request.fences;
    heap_remove(&ends, &left->end);
    unset_ready(left);
}

static void leave_queue(wait_place *left) {
    if (left->queue->length == 0) free_queue(left->queue);
    left->queue = NULL;
}

void queues_append(const wait_names *names, waiter *added) {
    make_places(added, names);
    join(added, ++last_arrival);
}

void queues_rejoin(int db, waiter *returned) {
    for (int i = 0; i < returned->place_count; i++)
        waiter_place(returned, i)->queue = find_or_make_queue(db, waiter_place(returned, i)->name);
    join(returned, returned->first.turn.key);
    queues_step_aside(returned);
}

void queues_replace(waiter *old, const wait_names *names, waiter *successor) {
    make_places(successor, names);
    part(old);
    join(successor, old->first.turn.key);
    for (int i = 0; i < old->place_count; i++)
        leave_queue(waiter_place(old, i));
}

void queues_leave(waiter *left) {
    part(left);
    for (int i = 0; i < left->place_count; i++)
        leave_queue(waiter_place(left, i));
}

bool queues_is_permitted(waiter *waiting, RedisModuleString *user) {
    if (!waiter_is_for_all(waiting)) return server_user_may_acquire(user, waiting->first.name);
    RedisModuleString *names[LOCK_NAMES_MAX];
    for (int i = 0; i < waiting->place_count; i++)
        names[i] = waiter_place(waiting, i)->name;
    return server_user_may_acquire_all(user, names, waiting->place_count);
}

void queues_abandon(waiter *granted) {
    for (int i = 0; i < granted->place_count; i++)
        ties_abandon(waiter_place(granted, i)->hold);
}

void queues_forget(waiter *left) {
    for (int i = 0; i < left->place_count; i++)
        RedisModule_FreeString(NULL, waiter_place(left, i)->name);
    RedisModule_Free(left->further);
}

/* The names of a request are all different, so that many matches are enough. */
bool queues_has_names(waiter *waiting, const wait_names *names) {
    if (waiting->place_count != names->count || waiting->first.queue->db != names->db) return false;
    for (int i = 0; i < names->count; i++) {
        const wait_queue *queue = queues_find(names->db, names->names[i]);
        if (queue == NULL || queues_find_token(queue, waiting->request.token) != waiting)
            return false;
    }
    return true;
}

/* The new first one may have waited only for the old one, which has left the line: if it is shared,
 * if it is for several names, or if the old one was, and has kept it from a free lock. */
static void mark_for_next(wait_queue *queue, const waiter *old) {
    const waiter *first = queues_first(queue);
    if (first != NULL &&
        (first->request.is_shared || waiter_is_for_all(first) || waiter_is_for_all(old)))
        queues_mark(queue);
}

void queues_step_aside(waiter *passed) {
    unset_ready(passed);
    passed->is_in_line = false;
    for (int i = 0; i < passed->place_count; i++) {
        wait_place *each = waiter_place(passed, i);
        bool was_first = queues_first(each->queue) == passed;
        heap_remove(&each->queue->line, &each->turn);
        if (was_first) mark_for_next(each->queue, passed);
    }
}

void queues_step_back(waiter *returned) {
    returned->is_in_line = true;
    for (int i = 0; i < returned->place_count; i++) {
        wait_place *each = waiter_place(returned, i);
        heap_add(&each->queue->line, &each->turn);
        if (queues_first(each->queue) == returned) queues_mark(each->queue);
    }
}

void queues_give_up(waiter *left) {
    _Static_assert(LOCK_NAMES_MAX <= 64, "one bit for each place");
    uint64_t was_first = 0;
    for (int i = 0; i < left->place_count; i++)
        if (queues_first(waiter_place(left, i)->queue) == left) was_first |= UINT64_C(1) << i;
    part(left);
    for (int i = 0; i < left->place_count; i++) {
        wait_place *each = waiter_place(left, i);
        if (was_first & UINT64_C(1) << i) mark_for_next(each->queue, left);
        leave_queue(each);
    }
}

/* -- those that may be served */

void queues_set_ready(waiter *waiting) {
    if (queues_is_ready(waiting)) return;
    waiting->further->is_ready = true;
    list_append(&ready, &waiting->further->node);
}

bool queues_have_ready(void) {
    return !list_is_empty(&ready);
}

waiter *queues_take_ready(void) {
    further_places *first = LIST_OBJECT(ready.first, further_places, node);
    if (first == NULL) return NULL;
    waiter *taken = first->owner;
    unset_ready(taken);
    return taken;
}

bool queues_is_first_in_all(waiter *waiting) {
    for (int i = 0; i < waiting->place_count; i++)
        if (queues_first(waiter_place(waiting, i)->queue) != waiting) return false;
    return true;
}

waiter *queues_first_end(void) {
    return (waiter *)heap_first(&ends);
}

waiter *queues_first(const wait_queue *queue) {
    const wait_place *first = of_turn(heap_first(&queue->line));
    return first == NULL ? NULL : first->owner;
}

size_t queues_list(const wait_queue *queue, size_t max, waiter **found) {
    heap_node **turns = (heap_node **)found;
    size_t count = heap_lowest(&queue->line, max, turns);
    for (size_t i = 0; i < count; i++)
        found[i] = of_turn(turns[i])->owner;
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

int64_t queues_pending_fences(void) {
    return pending_fences;
}

int64_t queues_count(void) {
    return queue_count;
}
