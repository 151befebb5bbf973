/* SPDX-License-Identifier: BSD-3-Clause */
/* optional_api.c - see optional_api.h. */
#include "optional_api.h"

#include <stdbool.h>
#include <stdlib.h>

optional_functions optional_api;

void optional_api_look_up(void) {
    RedisModule_GetApi("RedisModule_SetCommandACLCategories", &optional_api.set_acl_categories);
}

/* Valkey calls itself Redis 7.2.4 elsewhere. */
static bool is_valkey_9(RedisModuleCtx *ctx) {
    RedisModuleServerInfoData *info = RedisModule_GetServerInfo(ctx, "server");
    const char *version = RedisModule_ServerInfoGetFieldC(info, "valkey_version");
    bool is_9 = version != NULL && atoi(version) >= 9;
    RedisModule_FreeServerInfo(ctx, info);
    return is_9;
}

/* Valkey 9 moves a slot at once only if every module says that it can cope: our keys travel as
 * DLOCK.APPLY, and waiters whose slot is gone are sent on. */
int optional_api_options(RedisModuleCtx *ctx) {
    enum { VALKEY_HANDLE_ATOMIC_SLOT_MIGRATION = 1 << 5 };
    return is_valkey_9(ctx) ? VALKEY_HANDLE_ATOMIC_SLOT_MIGRATION : 0;
}
