/* SPDX-License-Identifier: BSD-3-Clause */
/* optional_api.h - what servers newer than 7.0 offer, looked up at load; NULL where it is
 * missing. */
#ifndef DLOCK_OPTIONAL_API_H
#define DLOCK_OPTIONAL_API_H

#include "redismodule.h"

typedef struct optional_functions {
    int (*set_acl_categories)(RedisModuleCommand *command, const char *categories); /* 7.2 */
} optional_functions;

extern optional_functions optional_api;

void optional_api_look_up(void);

/* Module options that only this server knows. */
int optional_api_options(RedisModuleCtx *ctx);

#endif
