/* SPDX-License-Identifier: BSD-3-Clause */
/* stats.h - what this server counts. info_section.c shows it.
 *
 * To add a counter: one row here, with the INFO field's name, and a stats_count() where it
 * happens. */
#ifndef DLOCK_STATS_H
#define DLOCK_STATS_H

#include <stdint.h>

/* clang-format off */
#define STATS_COUNTERS(row)                                                                        \
    row(STATS_GRANTED, "granted")                   /* grants to a new holder */                   \
    row(STATS_HANDED_OVER, "handed_over")           /* of these, to a client that had waited */    \
    row(STATS_REACQUIRED, "reacquired")             /* ACQUIRE by the token that held it */        \
    row(STATS_CONTENDED, "contended")               /* ACQUIRE that found another holder */        \
    row(STATS_RELEASED, "released")                 /* RELEASE by the holder */                    \
    row(STATS_EXPIRED, "expired")                   /* leases that ended */                        \
    row(STATS_FORCED, "forced")                     /* ended by DEL, FLUSHDB, SET, eviction ... */ \
    row(STATS_EXTENDED, "extended")                 /* EXTEND by the holder */                     \
    row(STATS_REFUSED, "refused")                   /* RELEASE or EXTEND by somebody else */       \
    row(STATS_WAIT_TIMEOUTS, "wait_timeouts")       /* waits that ended without the lock */        \
    row(STATS_QUEUE_FULL, "queue_full")             /* waits refused by dlock.max-waiters */       \
    row(STATS_SESSION_RELEASES, "session_releases") /* locks that ended with their client */
/* clang-format on */

typedef enum stats_counter {
#define STATS_ENUM(id, name) id,
    STATS_COUNTERS(STATS_ENUM)
#undef STATS_ENUM
        STATS_COUNTER_COUNT
} stats_counter;

/* Bucket i counts times below 2^i microseconds, and not below half of that; 2^40 us are 12 days. */
enum { STATS_BUCKET_COUNT = 41 };

typedef struct stats_histogram {
    uint64_t counts[STATS_BUCKET_COUNT];
} stats_histogram;

extern uint64_t stats_counters[STATS_COUNTER_COUNT];
extern const char *const stats_names[STATS_COUNTER_COUNT];
extern stats_histogram stats_wait_us; /* how long waiters waited for their grant */
extern stats_histogram stats_hold_us; /* how long holders held until they released */

static inline void stats_count(stats_counter counter) {
    stats_counters[counter]++;
}

void stats_add(stats_histogram *histogram, int64_t us);

#endif
