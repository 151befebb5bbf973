/* SPDX-License-Identifier: BSD-3-Clause */
/* stats.h - what the server counts, and how INFO dlock shows it.
 *
 * To add a counter: one row here, with the INFO field's name, and a stats_count() where it
 * happens. */
#ifndef DLOCK_STATS_H
#define DLOCK_STATS_H

#include "redismodule.h"
#include <stdint.h>

/* clang-format off */
#define STATS_COUNTERS(row)                                                                    \
    row(STATS_ACQUIRED, "acquired")                 /* grants to a new holder */               \
    row(STATS_HANDED_OVER, "handed_over")           /* of these, to one that had waited */     \
    row(STATS_REACQUIRED, "reacquired")             /* ACQUIRE by the token that held it */    \
    row(STATS_CONTENDED, "contended")               /* ACQUIRE that found another holder */    \
    row(STATS_RELEASED, "released")                 /* RELEASE by the holder */                \
    row(STATS_EXTENDED, "extended")                 /* EXTEND by the holder */                 \
    row(STATS_REFUSED, "refused")                   /* RELEASE or EXTEND by somebody else */   \
    row(STATS_WAIT_TIMEOUTS, "wait_timeouts")       /* waits that ended without the lock */    \
    row(STATS_QUEUE_FULL, "queue_full")             /* waits refused by dlock.max-waiters */   \
    row(STATS_SESSION_RELEASES, "session_releases") /* locks that ended with their client */
/* clang-format on */

typedef enum stats_counter {
#define STATS_ENUM(id, name) id,
    STATS_COUNTERS(STATS_ENUM)
#undef STATS_ENUM
        STATS_COUNTER_COUNT
} stats_counter;

extern uint64_t stats_counters[STATS_COUNTER_COUNT];

static inline void stats_count(stats_counter counter) {
    stats_counters[counter]++;
}

/* How long a waiter waited for its grant, and how long a holder held until it released. */
void stats_wait(uint64_t us);
void stats_hold(uint64_t us);

/* Registers the INFO section. */
int stats_register(RedisModuleCtx *ctx);

#endif
