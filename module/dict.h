/* SPDX-License-Identifier: BSD-3-Clause */
/* dict.h - dictionaries of the server with names of any length. */
#ifndef DLOCK_DICT_H
#define DLOCK_DICT_H

#include "redismodule.h"

/* A dictionary that has become empty keeps the memory of its last name, which may be hundreds of
 * megabytes. So an empty one takes its place. */
static inline void dict_forget_name(RedisModuleDict **names, RedisModuleString *name) {
    RedisModule_DictDel(*names, name, NULL);
    if (RedisModule_DictSize(*names) > 0) return;
    RedisModule_FreeDict(NULL, *names);
    *names = RedisModule_CreateDict(NULL);
}

#endif
