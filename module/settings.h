/* SPDX-License-Identifier: BSD-3-Clause */
/* settings.h - the settings for operators: CONFIG SET dlock.NAME, or "loadmodule dlock.so NAME
 * value".
 *
 * To add a setting: a field here and a row in settings.c. */
#ifndef DLOCK_SETTINGS_H
#define DLOCK_SETTINGS_H

#include "redismodule.h"

typedef struct settings_values {
    long long max_lease_ms; /* the longest lease a client may ask for */
    long long max_waiters;  /* per lock */
    long long max_waiters_in_all;
    long long max_sessions;
    long long max_watches;        /* of all sessions */
    long long max_events;         /* of one session, not acknowledged */
    long long max_holders;        /* per lock */
    long long require_noeviction; /* 1: no ACQUIRE while maxmemory-policy could evict the lock */
    long long drain;              /* 1: no new locks, and no last fence in files */
} settings_values;

extern settings_values settings;

/* Reads the loadmodule arguments, registers the settings and loads the values. On failure the
 * reason is in the server's log. */
int settings_register(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

#endif
