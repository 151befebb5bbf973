/* SPDX-License-Identifier: BSD-3-Clause */
/* dlock.c - the entry point of the module: registers everything, in the right order.
 *
 *   commands.c     the commands and their table          args.c         arguments of commands
 *   transition.c   the only place where a lock changes hands; transition_all.c: several in one step
 *   work.c         work without a command: ends of leases, sessions and waits
 *   queues.c       the waiters of each lock              blocked.c      the clients of the waiters
 *   session.h, sessions.c  sessions                      mailbox.c      their events
 *   ties.c         the holds of sessions
 *   session_waits.c  the waits of sessions               watches.c, losses.c  what they are told
 *   session_commands.c  the commands of sessions         info_command.c  DLOCK.INFO
 *   caller.c       the client of a command
 *   strays.c       locks that were renamed
 *   leases.c       the end of each lease                 lease_index.c  index of leases (pure)
 *   lock_store.c   a lock as a key                       lock_value.c   a lock as a value
 *   lock_type.c    the data type: files, unlinking       lock_codec.c   a lock as bytes (pure)
 *   lock_state.c   the rules of a lock (pure)            fence.c        the clock of fences (pure)
 *   fences.c       gives out fences, and tells others the clock
 *   replicate.c    the only writer to AOF and replicas
 *   server.c       clocks, alarm, role and version of the server
 *   server_events.c  events of the server
 *   guard.c        commands that only the holder runs    guard_rules.c  which commands those are
 *   settings.c, stats.h, info_section.c                  settings and figures for operators
 *   heap.c, list.h, cluster_slot.c                       a heap, a list, hash slots (pure)
 *
 * Redis keeps everything registered here until exit: a module with a data type is never
 * unloaded. */
#define REDISMODULE_MAIN
#include "redismodule.h"

#include "blocked.h"
#include "commands.h"
#include "fences.h"
#include "guard_rules.h"
#include "heap.h"
#include "info_section.h"
#include "lock_type.h"
#include "queues.h"
#include "replicate.h"
#include "server.h"
#include "server_events.h"
#include "sessions.h"
#include "settings.h"
#include "watches.h"
#include "work.h"

/* The module checks every read of an RDB, signals every change of a key, and supports replicas
 * that keep serving clients while loading. */
enum {
    OPTIONS = REDISMODULE_OPTIONS_HANDLE_IO_ERRORS |
              REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED |
              REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD
};

/* RedisModule_Realloc() never fails. */
static void *resize(void *memory, size_t size) {
    return RedisModule_Realloc(memory, size);
}

static void release(void *memory) {
    RedisModule_Free(memory);
}

__attribute__((visibility("default"))) int RedisModule_OnLoad(RedisModuleCtx *ctx,
                                                              RedisModuleString **argv, int argc);

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (RedisModule_Init(ctx, "dlock", DLOCK_VERSION_NUMBER, REDISMODULE_APIVER_1) !=
        REDISMODULE_OK)
        return REDISMODULE_ERR;
    if (RedisModule_RegisterNumericConfig == NULL) {
        RedisModule_Log(ctx, "warning", "dlock needs Redis 7.0 or Valkey 8.0, or later");
        return REDISMODULE_ERR;
    }
    RedisModule_SetModuleOptions(ctx, OPTIONS | server_module_options(ctx));
    heap_resize = resize;
    heap_release = release;
    if (settings_register(ctx, argv, argc) != REDISMODULE_OK) return REDISMODULE_ERR;
    if (!server_init(ctx, work_run)) return REDISMODULE_ERR;
    replicate_init();
    fences_init(ctx);
    sessions_init();
    queues_init();
    watches_init();
    blocked_init();
    guard_rules_init();
    if (lock_type_register(ctx) != REDISMODULE_OK || commands_register(ctx) != REDISMODULE_OK ||
        info_section_register(ctx) != REDISMODULE_OK ||
        server_events_subscribe(ctx) != REDISMODULE_OK)
        return REDISMODULE_ERR;
    RedisModule_Log(ctx, "notice", "dlock %s is ready", DLOCK_VERSION);
    return REDISMODULE_OK;
}
