/* SPDX-License-Identifier: BSD-3-Clause */
/* strays.c - see strays.h.
 *
 *   expected   the names of restored locks: looked at once, within the next turn of the event loop
 *   search     through all databases with a SCAN cursor, in portions, until no strays are left */
#include "strays.h"

#include "list.h"
#include "lock_value.h"
#include "server.h"
#include "watches.h"

enum { PATIENCE_US = 1000000, SEARCH_AGAIN_US = 10000000, SEARCH_PAUSE_US = 5000 };

/* RENAME back and forth makes a stray again and again. So searches get at most a fiftieth of the
 * processor: the rest after a search is so many times the work. */
enum { REST = 50, PORTION_MAX_US = 10000 };

typedef struct expectation {
    list_node node;
    int db;
    RedisModuleString *name;
} expectation;

static list expected;
static int64_t due_us = SERVER_NEVER, worked_us, rested_us;
static RedisModuleScanCursor *cursor; /* NULL: no search is under way */
static int db;

void strays_search_soon(void) {
    int64_t soon_us = server_boot_us() + PATIENCE_US;
    if (due_us <= soon_us) return;
    due_us = soon_us;
    server_alarm(due_us);
}

static void look_at_key(RedisModuleCtx *ctx, RedisModuleString *name, RedisModuleKey *key,
                        void *data) {
    (void)ctx;
    if (key == NULL || RedisModule_KeyType(key) != REDISMODULE_KEYTYPE_MODULE ||
        RedisModule_ModuleTypeGetType(key) != lock_type)
        return;
    int at_db = *(const int *)data;
    lock_value *value = RedisModule_ModuleTypeGetValue(key);
    if (lock_value_index_strays(value, at_db, name, server_boot_us(), false) > 0)
        watches_mark(at_db, name);
}

void strays_expect(int at_db, const RedisModuleString *name) {
    expectation *made = RedisModule_Alloc(sizeof(*made));
    made->db = at_db;
    made->name = RedisModule_CreateStringFromString(NULL, name);
    list_append(&expected, &made->node);
    server_alarm(0);
}

/* A lock that is not there was thrown away, or has another name by now. */
static void look_at_expected(RedisModuleCtx *ctx, int64_t until_us) {
    while (!list_is_empty(&expected) && server_boot_us() < until_us) {
        expectation *first = LIST_OBJECT(expected.first, expectation, node);
        list_remove(&expected, &first->node);
        RedisModule_SelectDb(ctx, first->db);
        RedisModuleKey *key = RedisModule_OpenKey(ctx, first->name, REDISMODULE_READ);
        look_at_key(ctx, first->name, key, &first->db);
        RedisModule_CloseKey(key);
        RedisModule_FreeString(NULL, first->name);
        RedisModule_Free(first);
        if (list_is_empty(&expected) && lock_value_stray_count() > 0) strays_search_soon();
    }
}

static void end_search(int64_t again_us) {
    rested_us = server_boot_us() + worked_us * REST;
    worked_us = 0;
    RedisModule_ScanCursorDestroy(cursor);
    cursor = NULL;
    due_us = again_us;
}

/* True: the search has been through all databases. */
static bool search(RedisModuleCtx *ctx, int64_t until_us) {
    if (cursor == NULL) {
        cursor = RedisModule_ScanCursorCreate();
        db = 0;
    }
    RedisModule_SelectDb(ctx, db);
    while (server_boot_us() < until_us) {
        if (RedisModule_Scan(ctx, cursor, look_at_key, &db)) continue;
        if (RedisModule_SelectDb(ctx, ++db) != REDISMODULE_OK) return true;
        RedisModule_ScanCursorRestart(cursor);
    }
    return false;
}

static void run(RedisModuleCtx *ctx, int64_t until_us) {
    look_at_expected(ctx, until_us);
    int64_t now_us = server_boot_us();
    if (now_us < due_us) return;
    if (lock_value_stray_count() == 0) {
        if (cursor != NULL) end_search(SERVER_NEVER);
        due_us = SERVER_NEVER;
        return;
    }
    if (cursor == NULL && now_us < rested_us) {
        due_us = rested_us;
        return;
    }
    due_us = now_us + SEARCH_PAUSE_US;
    bool is_complete = search(ctx, until_us);
    int64_t spent_us = server_boot_us() - now_us;
    worked_us += spent_us < PORTION_MAX_US ? spent_us : PORTION_MAX_US;
    if (!is_complete) return;
    bool is_done = lock_value_stray_count() == 0;
    end_search(is_done ? SERVER_NEVER : now_us + SEARCH_AGAIN_US);
}

/* The context is back in database 0 in the end: what is replicated next must not select another
 * one, which a replica in a cluster refuses. */
void strays_run(RedisModuleCtx *ctx, int64_t until_us) {
    run(ctx, until_us);
    RedisModule_SelectDb(ctx, 0);
}

int64_t strays_due(void) {
    return list_is_empty(&expected) ? due_us : 0;
}
