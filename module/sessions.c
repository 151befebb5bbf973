/* SPDX-License-Identifier: BSD-3-Clause */
/* sessions.c - see sessions.h.
 *
 *   by_fence   grant -> tie: for INFO, and to undo the tie when the lock ends
 *   by_client  client -> its ties, a list: for the moment when the connection ends
 *
 * When it ends, each tie is undone first and its lock is settled after (deferred.h). So a tie that
 * exists when the lock is settled is a new one, to another connection, and the lock stays. */
#include "sessions.h"

#include "deferred.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct tie {
    struct tie *prev, *next; /* of the same client */
    int64_t fence;
    uint64_t client;
    int db;
    RedisModuleString *name;
} tie;

static RedisModuleDict *by_fence, *by_client;
static int64_t count;

static tie *find(RedisModuleDict *in, const void *id) {
    return RedisModule_DictGetC(in, (void *)id, sizeof(uint64_t), NULL);
}

/* Makes first the head of the client's list; NULL removes the list. */
static void set_first_of(uint64_t client, tie *first) {
    if (first != NULL)
        RedisModule_DictReplaceC(by_client, &client, sizeof(client), first);
    else
        RedisModule_DictDelC(by_client, &client, sizeof(client), NULL);
}

static void undo(tie *old) {
    if (old->prev != NULL)
        old->prev->next = old->next;
    else
        set_first_of(old->client, old->next);
    if (old->next != NULL) old->next->prev = old->prev;
    RedisModule_DictDelC(by_fence, &old->fence, sizeof(old->fence), NULL);
    count--;
    RedisModule_FreeString(NULL, old->name);
    RedisModule_Free(old);
}

void sessions_init(void) {
    by_fence = RedisModule_CreateDict(NULL);
    by_client = RedisModule_CreateDict(NULL);
}

void sessions_bind(int64_t fence, uint64_t client, int db, const RedisModuleString *name) {
    sessions_forget(fence);
    tie *made = RedisModule_Calloc(1, sizeof(*made));
    made->fence = fence;
    made->client = client;
    made->db = db;
    made->name = RedisModule_CreateStringFromString(NULL, name);
    made->next = find(by_client, &client);
    if (made->next != NULL) made->next->prev = made;
    set_first_of(client, made);
    RedisModule_DictSetC(by_fence, &fence, sizeof(fence), made);
    count++;
}

void sessions_forget(int64_t fence) {
    if (count == 0) return;
    tie *old = find(by_fence, &fence);
    if (old != NULL) undo(old);
}

uint64_t sessions_client(int64_t fence) {
    if (count == 0) return 0;
    tie *found = find(by_fence, &fence);
    return found == NULL ? 0 : found->client;
}

int64_t sessions_count(void) {
    return count;
}

void sessions_end_all_of(uint64_t client) {
    if (count == 0) return;
    tie *each;
    while ((each = find(by_client, &client)) != NULL) {
        deferred_settle_soon(each->db, each->name, each->fence);
        undo(each);
    }
}

void sessions_flush(int db) {
    if (count == 0) return;
    RedisModuleDictIter *iter = RedisModule_DictIteratorStartC(by_fence, "^", NULL, 0);
    tie *each;
    while (RedisModule_DictNextC(iter, NULL, (void **)&each) != NULL) {
        if (db >= 0 && db != each->db) continue;
        int64_t fence = each->fence;
        undo(each);
        RedisModule_DictIteratorReseekC(iter, ">", &fence, sizeof(fence));
    }
    RedisModule_DictIteratorStop(iter);
}

void sessions_swap(int db, int other_db) {
    if (count == 0) return;
    RedisModuleDictIter *iter = RedisModule_DictIteratorStartC(by_fence, "^", NULL, 0);
    tie *each;
    while (RedisModule_DictNextC(iter, NULL, (void **)&each) != NULL) {
        if (each->db == db)
            each->db = other_db;
        else if (each->db == other_db)
            each->db = db;
    }
    RedisModule_DictIteratorStop(iter);
}
