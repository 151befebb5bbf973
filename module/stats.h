/* SPDX-License-Identifier: BSD-3-Clause */
/* stats.h - what the server counts, and how INFO dlock shows it.
 *
 * To add a counter: one row here, with the INFO field's name, and a stats_count() where it happens. */
#ifndef DLOCK_STATS_H
#define DLOCK_STATS_H

#include "redismodule.h"
#include <stdint.h>

#define STATS_COUNTERS(row)                                                                        \
    row(STATS_ACQUIRED, "acquired")         /* grants to a new holder */                           \
        row(STATS_REACQUIRED, "reacquired") /* ACQUIRE by the token that held it already */        \
        row(STATS_CONTENDED, "contended")   /* ACQUIRE that found another holder */                \
        row(STATS_RELEASED, "released")     /* RELEASE by the holder */                            \
        row(STATS_EXTENDED, "extended")     /* EXTEND by the holder */                             \
        row(STATS_REFUSED, "refused")       /* RELEASE or EXTEND by somebody else */

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

/* Registers the INFO section. */
int stats_register(RedisModuleCtx *ctx);

#endif
