/* SPDX-License-Identifier: BSD-3-Clause */
/* settings.c - the table of settings.
 *
 * A loadmodule argument replaces the default of a setting. A value from the configuration file,
 * from MODULE LOADEX or from CONFIG SET overrides the argument. CONFIG REWRITE keeps the loadmodule
 * line, so it has to write only the values that differ from that line. */
#include "settings.h"

#include "lock_state.h"
#include <string.h>
#include <strings.h>

settings_values settings;

typedef struct setting {
    const char *name;
    bool is_bool;
    long long first, last, initial;
    long long *value;
} setting;

static const setting table[] = {
    {"max-lease", false, 1, LOCK_LEASE_MAX_MS, 24 * 60 * 60 * 1000LL, &settings.max_lease_ms},
    {"max-holders", false, 1, LOCK_HOLDERS_MAX, 1024, &settings.max_holders},
    {"max-waiters", false, 0, INT32_MAX, 10000, &settings.max_waiters},
    {"max-waiters-in-all", false, 0, INT32_MAX, 1000000, &settings.max_waiters_in_all},
    {"max-sessions", false, 0, INT32_MAX, 1000000, &settings.max_sessions},
    {"max-watches", false, 0, INT32_MAX, 1000000, &settings.max_watches},
    {"max-events", false, 0, INT32_MAX, 100000, &settings.max_events},
    {"require-noeviction", true, 0, 1, 0, &settings.require_noeviction},
    {"drain", true, 0, 1, 0, &settings.drain},
};
enum { SETTING_COUNT = sizeof(table) / sizeof(table[0]) };

static const setting *find(const char *name) {
    for (int i = 0; i < SETTING_COUNT; i++)
        if (strcasecmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}

static bool parse_value(const setting *row, RedisModuleString *word, long long *value) {
    if (!row->is_bool)
        return RedisModule_StringToLongLong(word, value) == REDISMODULE_OK &&
               *value >= row->first && *value <= row->last;
    const char *text = RedisModule_StringPtrLen(word, NULL);
    *value = strcasecmp(text, "yes") == 0;
    return *value || strcasecmp(text, "no") == 0;
}

static int parse_argument(RedisModuleCtx *ctx, RedisModuleString **argv, int argc,
                          long long initial[SETTING_COUNT]) {
    const char *name = RedisModule_StringPtrLen(argv[0], NULL);
    const setting *row = find(name);
    if (row == NULL) {
        RedisModule_Log(ctx, "warning", "loadmodule: no setting is called '%s'", name);
        return REDISMODULE_ERR;
    }
    if (argc < 2) {
        RedisModule_Log(ctx, "warning", "loadmodule: '%s' needs a value", row->name);
        return REDISMODULE_ERR;
    }
    if (parse_value(row, argv[1], &initial[row - table])) return REDISMODULE_OK;

    const char *text = RedisModule_StringPtrLen(argv[1], NULL);
    if (row->is_bool)
        RedisModule_Log(ctx, "warning", "loadmodule: bad value '%s' for '%s': it is yes or no",
                        text, row->name);
    else
        RedisModule_Log(ctx, "warning",
                        "loadmodule: bad value '%s' for '%s': it is a number from %lld to %lld",
                        text, row->name, row->first, row->last);
    return REDISMODULE_ERR;
}

static long long get_number(const char *name, void *row) {
    (void)name;
    return *((const setting *)row)->value;
}

static int set_number(const char *name, long long value, void *row, RedisModuleString **error) {
    (void)name, (void)error;
    *((const setting *)row)->value = value;
    return REDISMODULE_OK;
}

static int get_bool(const char *name, void *row) {
    return (int)get_number(name, row);
}

static int set_bool(const char *name, int value, void *row, RedisModuleString **error) {
    return set_number(name, value, row, error);
}

static int register_row(RedisModuleCtx *ctx, const setting *row, long long initial) {
    if (row->is_bool)
        return RedisModule_RegisterBoolConfig(ctx, row->name, (int)initial,
                                              REDISMODULE_CONFIG_DEFAULT, get_bool, set_bool, NULL,
                                              (void *)row);
    return RedisModule_RegisterNumericConfig(ctx, row->name, initial, REDISMODULE_CONFIG_DEFAULT,
                                             row->first, row->last, get_number, set_number, NULL,
                                             (void *)row);
}

int settings_register(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    long long initial[SETTING_COUNT];
    for (int i = 0; i < SETTING_COUNT; i++)
        initial[i] = table[i].initial;
    for (int i = 0; i < argc; i += 2)
        if (parse_argument(ctx, argv + i, argc - i, initial) != REDISMODULE_OK)
            return REDISMODULE_ERR;
    for (int i = 0; i < SETTING_COUNT; i++)
        if (register_row(ctx, &table[i], initial[i]) != REDISMODULE_OK) return REDISMODULE_ERR;
    return RedisModule_LoadConfigs(ctx);
}
