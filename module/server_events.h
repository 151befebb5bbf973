/* SPDX-License-Identifier: BSD-3-Clause */
/* server_events.h - passes the events of the server on to the files concerned.
 *
 * A module has one callback for each event, so all subscriptions are here. The exception is the
 * event loop: blocked.c follows the turns of the loop while clients wait. */
#ifndef DLOCK_SERVER_EVENTS_H
#define DLOCK_SERVER_EVENTS_H

#include "redismodule.h"

int server_events_subscribe(RedisModuleCtx *ctx);

#endif
