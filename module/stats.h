/* SPDX-License-Identifier: BSD-3-Clause */
/* stats.h - the counters of the server. info_section.c has and shows them.
 *
 * To add a counter: a row here, with the name of the INFO field, and a stats_count() where the
 * event happens. */
#ifndef DLOCK_STATS_H
#define DLOCK_STATS_H

#include <stdint.h>

/* clang-format off */
#define STATS_COUNTERS(row)                                                                        \
    row(STATS_GRANTED, "granted")                   /* grants to a new holder */                   \
    row(STATS_HANDED_OVER, "handed_over")           /* part of granted: after a wait */            \
    row(STATS_REACQUIRED, "reacquired")             /* ACQUIRE by the current holder */            \
    row(STATS_CONTENDED, "contended")               /* ACQUIRE while another token holds */        \
    row(STATS_RELEASED, "released")                 /* RELEASE by the holder */                    \
    row(STATS_EXPIRED, "expired")                   /* leases that ended */                        \
    row(STATS_FORCED, "forced")                     /* ended by DEL, FLUSHDB, SET, eviction ... */ \
    row(STATS_EXTENDED, "extended")                 /* EXTEND by the holder */                     \
    row(STATS_REFUSED, "refused")                   /* RELEASE or EXTEND by a non-holder */        \
    row(STATS_WAIT_TIMEOUTS, "wait_timeouts")       /* waits that ended without the lock */        \
    row(STATS_QUEUE_FULL, "queue_full")             /* waits and watches refused: too many */      \
    row(STATS_SESSION_RELEASES, "session_releases") /* locks that ended with a session */          \
    row(STATS_SESSION_TIMEOUTS, "session_timeouts") /* sessions not heard of in time */            \
    row(STATS_HEARTBEATS, "heartbeats")             /* DLOCK.SESSION of a living session */        \
    row(STATS_EVENTS, "events")                     /* events of sessions */                       \
    row(STATS_GUARDED, "guarded")                   /* GUARD by a holder: the command was run */   \
    row(STATS_GUARDS_REFUSED, "guards_refused")     /* GUARD by a non-holder */
/* clang-format on */

typedef enum stats_counter {
#define STATS_ENUM(id, name) id,
    STATS_COUNTERS(STATS_ENUM)
#undef STATS_ENUM
        STATS_COUNTER_COUNT
} stats_counter;

/* Bucket i counts times from 2^(i-1) to less than 2^i microseconds; 2^40 us are 12 days. */
enum { STATS_BUCKET_COUNT = 41 };

typedef struct stats_histogram {
    uint64_t counts[STATS_BUCKET_COUNT];
    uint64_t sum_us;
} stats_histogram;

extern uint64_t stats_counters[STATS_COUNTER_COUNT];
extern const char *const stats_names[STATS_COUNTER_COUNT];
extern stats_histogram stats_wait_us; /* time from the start of a wait to the grant */
extern stats_histogram stats_hold_us; /* time from the grant to the release */

static inline void stats_count(stats_counter counter) {
    stats_counters[counter]++;
}

static inline void stats_count_many(stats_counter counter, int64_t count) {
    stats_counters[counter] += (uint64_t)count;
}

void stats_add(stats_histogram *histogram, int64_t us);

#endif
