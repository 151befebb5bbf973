/* SPDX-License-Identifier: BSD-3-Clause */
/* server_events.h - what the server tells us, passed on to whom it concerns.
 *
 * A module has one callback for each event, so this is the one place that subscribes; but for the
 * turns of the event loop, which blocked.c follows by itself while somebody waits. */
#ifndef DLOCK_SERVER_EVENTS_H
#define DLOCK_SERVER_EVENTS_H

#include "redismodule.h"

int server_events_subscribe(RedisModuleCtx *ctx);

#endif
