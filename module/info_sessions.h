/* SPDX-License-Identifier: BSD-3-Clause */
/* info_sessions.h - the sessions in INFO dlock: who is present at this server. */
#ifndef DLOCK_INFO_SESSIONS_H
#define DLOCK_INFO_SESSIONS_H

#include "redismodule.h"

/* Adds a section with the oldest sessions, and how many more there are. Main thread only. */
void info_sessions_show(RedisModuleInfoCtx *info);

#endif
