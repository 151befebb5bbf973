/* SPDX-License-Identifier: BSD-3-Clause */
/* strays.c - see strays.h. A search goes through all databases with a SCAN cursor, in portions,
 * until no strays are left. */
#include "strays.h"

#include "lock_value.h"
#include "server.h"

enum { PATIENCE_US = 1000000, SEARCH_AGAIN_US = 10000000, SEARCH_PAUSE_US = 5000 };

static int64_t due_us = SERVER_NEVER;
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
    (void)ctx, (void)data;
    if (key == NULL || RedisModule_KeyType(key) != REDISMODULE_KEYTYPE_MODULE ||
        RedisModule_ModuleTypeGetType(key) != lock_type)
        return;
    lock_value_index_strays(RedisModule_ModuleTypeGetValue(key), db, name, server_boot_us());
}

static void end_search(int64_t again_us) {
    RedisModule_ScanCursorDestroy(cursor);
    cursor = NULL;
    due_us = again_us;
}

void strays_run(RedisModuleCtx *ctx, int64_t until_us) {
    int64_t now_us = server_boot_us();
    if (now_us < due_us) return;
    if (lock_value_stray_count() == 0) {
        if (cursor != NULL) end_search(SERVER_NEVER);
        due_us = SERVER_NEVER;
        return;
    }
    if (cursor == NULL) {
        cursor = RedisModule_ScanCursorCreate();
        db = 0;
    }
    RedisModule_SelectDb(ctx, db);
    due_us = now_us + SEARCH_PAUSE_US;
    while (server_boot_us() < until_us) {
        if (RedisModule_Scan(ctx, cursor, look_at_key, NULL)) continue;
        if (RedisModule_SelectDb(ctx, ++db) != REDISMODULE_OK) {
            bool is_done = lock_value_stray_count() == 0;
            end_search(is_done ? SERVER_NEVER : now_us + SEARCH_AGAIN_US);
            return;
        }
        RedisModule_ScanCursorRestart(cursor);
    }
}

int64_t strays_due(void) {
    return due_us;
}
