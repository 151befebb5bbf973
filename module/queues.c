/* SPDX-License-Identifier: BSD-3-Clause */
/* queues.c - see queues.h.
 *
 *   by_db      name -> queue, for each database
 *   by_token   queue id and token -> waiter: the same token may wait again, or be released
 *   ends       when each wait ends (a heap)
 *   looks      when to look at each awaited lock again (a heap): Redis does not tell the module
 *              about the end of a plain string, or about an EXPIRE on a lock
 *   dirty      queues whose lock may be free
 *   checked    all queues; queues that have not seen the last queues_check_all() are in front */
#include "queues.h"

#include "server.h"
#include <string.h>

enum { HEAP_INITIAL = 64, TOKEN_KEY_MAX = sizeof(uint64_t) + LOCK_TOKEN_MAX };

typedef struct heap {
    deadlines times;
    size_t capacity;
} heap;

static RedisModuleDict **by_db;
static int db_count;
static RedisModuleDict *by_token;
static heap ends, looks;
static wait_queue *dirty_first, *dirty_last, *checked_first, *checked_last;
static uint64_t last_queue_id, last_check;
static int64_t waiter_count, queue_count;

/* -- heaps */

static void heap_add(heap *target, deadline *added) {
    if (target->times.count == target->capacity) {
        target->capacity = target->capacity == 0 ? HEAP_INITIAL : target->capacity * 2;
        target->times.heap = RedisModule_Realloc(target->times.heap,
                                                 sizeof(target->times.heap[0]) * target->capacity);
    }
    deadlines_add(&target->times, added);
}

static void heap_remove(heap *target, deadline *removed) {
    deadlines_remove(&target->times, removed);
    if (target->times.count > 0 || target->capacity == HEAP_INITIAL) return;
    RedisModule_Free(target->times.heap);
    *target = (heap){.capacity = 0};
}

/* -- the lists of queues */

static void dirty_add(wait_queue *added) {
    added->dirty_prev = dirty_last;
    added->dirty_next = NULL;
    if (dirty_last != NULL)
        dirty_last->dirty_next = added;
    else
        dirty_first = added;
    dirty_last = added;
}

static void dirty_remove(wait_queue *removed) {
    if (removed->dirty_prev != NULL)
        removed->dirty_prev->dirty_next = removed->dirty_next;
    else
        dirty_first = removed->dirty_next;
    if (removed->dirty_next != NULL)
        removed->dirty_next->dirty_prev = removed->dirty_prev;
    else
        dirty_last = removed->dirty_prev;
}

static void checked_add(wait_queue *added) {
    added->checked = last_check;
    added->checked_prev = checked_last;
    added->checked_next = NULL;
    if (checked_last != NULL)
        checked_last->checked_next = added;
    else
        checked_first = added;
    checked_last = added;
}

static void checked_remove(wait_queue *removed) {
    if (removed->checked_prev != NULL)
        removed->checked_prev->checked_next = removed->checked_next;
    else
        checked_first = removed->checked_next;
    if (removed->checked_next != NULL)
        removed->checked_next->checked_prev = removed->checked_prev;
    else
        checked_last = removed->checked_prev;
}

/* -- tokens */

static size_t token_key(const wait_queue *queue, lock_token token, char key[TOKEN_KEY_MAX]) {
    memcpy(key, &queue->id, sizeof(queue->id));
    memcpy(key + sizeof(queue->id), token.bytes, token.length);
    return sizeof(queue->id) + token.length;
}

static void set_token(waiter *added) {
    char key[TOKEN_KEY_MAX];
    size_t size = token_key(added->queue, added->request.token, key);
    RedisModule_DictReplaceC(by_token, key, size, added);
}

static void forget_token(waiter *left) {
    char key[TOKEN_KEY_MAX];
    size_t size = token_key(left->queue, left->request.token, key);
    RedisModule_DictDelC(by_token, key, size, NULL);
}

waiter *queues_find_token(const wait_queue *queue, lock_token token) {
    char key[TOKEN_KEY_MAX];
    size_t size = token_key(queue, token, key);
    return RedisModule_DictGetC(by_token, key, size, NULL);
}

/* -- queues */

void queues_init(void) {
    by_token = RedisModule_CreateDict(NULL);
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
    made->look.at_us = SERVER_NEVER;
    heap_add(&looks, &made->look);
    checked_add(made);
    RedisModule_DictSet(by_db[db], made->name, made);
    queue_count++;
    return made;
}

static void free_queue(wait_queue *old) {
    RedisModule_DictDel(by_db[old->db], old->name, NULL);
    heap_remove(&looks, &old->look);
    queues_unmark(old);
    checked_remove(old);
    RedisModule_FreeString(NULL, old->name);
    RedisModule_Free(old);
    queue_count--;
}

void queues_append(int db, RedisModuleString *name, waiter *added) {
    wait_queue *joined = queues_find(db, name);
    if (joined == NULL) joined = make_queue(db, name);
    added->queue = joined;
    added->prev = joined->last;
    added->next = NULL;
    if (joined->last != NULL)
        joined->last->next = added;
    else
        joined->first = added;
    joined->last = added;
    joined->length++;
    waiter_count++;
    set_token(added);
    heap_add(&ends, &added->end);
    server_alarm(added->end.at_us);
}

void queues_replace(waiter *old, waiter *successor) {
    wait_queue *joined = old->queue;
    successor->queue = joined;
    successor->prev = old->prev;
    successor->next = old->next;
    if (old->prev != NULL)
        old->prev->next = successor;
    else
        joined->first = successor;
    if (old->next != NULL)
        old->next->prev = successor;
    else
        joined->last = successor;
    old->queue = NULL;
    old->prev = old->next = NULL;
    set_token(successor);
    heap_remove(&ends, &old->end);
    heap_add(&ends, &successor->end);
    server_alarm(successor->end.at_us);
}

void queues_leave(waiter *left) {
    wait_queue *queue = left->queue;
    forget_token(left);
    if (left->prev != NULL)
        left->prev->next = left->next;
    else
        queue->first = left->next;
    if (left->next != NULL)
        left->next->prev = left->prev;
    else
        queue->last = left->prev;
    left->prev = left->next = NULL;
    left->queue = NULL;
    queue->length--;
    waiter_count--;
    heap_remove(&ends, &left->end);
    if (queue->first == NULL) free_queue(queue);
}

void queues_give_up(waiter *left) {
    wait_queue *queue = left->queue;
    bool is_next_freed = left->prev == NULL && left->next != NULL && left->next->request.is_shared;
    queues_leave(left);
    if (is_next_freed) queues_mark(queue);
}

waiter *queues_first_end(void) {
    return (waiter *)deadlines_first(&ends.times);
}

void queues_mark(wait_queue *dirty) {
    if (!dirty->is_dirty) dirty_add(dirty);
    dirty->is_dirty = true;
    server_alarm(0);
}

void queues_unmark(wait_queue *clean) {
    if (clean->is_dirty) dirty_remove(clean);
    clean->is_dirty = false;
}

wait_queue *queues_first_dirty(void) {
    return dirty_first;
}

void queues_check_all(void) {
    last_check++;
    if (queue_count > 0) server_alarm(0);
}

wait_queue *queues_first_unchecked(void) {
    return checked_first != NULL && checked_first->checked != last_check ? checked_first : NULL;
}

void queues_set_checked(wait_queue *checked) {
    checked_remove(checked);
    checked_add(checked);
}

void queues_set_look(wait_queue *queue, int64_t due_us) {
    heap_remove(&looks, &queue->look);
    queue->look.at_us = due_us;
    heap_add(&looks, &queue->look);
    server_alarm(due_us);
}

wait_queue *queues_first_look(void) {
    return (wait_queue *)deadlines_first(&looks.times);
}

int64_t queues_waiter_count(void) {
    return waiter_count;
}

int64_t queues_count(void) {
    return queue_count;
}
