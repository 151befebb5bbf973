/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_state.h - the state of a lock, and the rules for changing a lock.
 *
 * Pure: no Redis, no clock, no I/O. */
#ifndef DLOCK_LOCK_STATE_H
#define DLOCK_LOCK_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* For what ACQUIRE and ACQUIREALL, or RELEASE and RELEASEALL, have in common: the calls would cost
 * the commands for one lock a hundredth of their instructions. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

#define LOCK_TOKEN_MAX 256

/* The longest lease in the stored form: 2^32 - 1 ms, a good 49 days. */
#define LOCK_LEASE_MAX_MS INT64_C(4294967295)

/* Every fence from a file or from the network must be below the limit, which the clock reaches in
 * the year 2255: Lua and JavaScript numbers represent smaller integers exactly. */
#define LOCK_FENCE_LIMIT (INT64_C(1) << 53)

/* The most holders a lock can have, whatever the settings say. */
#define LOCK_HOLDERS_MAX 100000

/* The most names that one request can take. */
#define LOCK_NAMES_MAX 64

/* The holder's identity, any bytes. Borrowed: valid as long as the memory with the bytes. */
typedef struct lock_token {
    const char *bytes;
    size_t length;
} lock_token;

static inline bool lock_is_token(lock_token one, lock_token other) {
    return one.length == other.length && memcmp(one.bytes, other.bytes, one.length) == 0;
}

/* A lock of the module, or a plain string: the SET NX PX lock of another client, which has
 * neither fence nor lease. */
typedef enum lock_kind { LOCK_KIND_LOCK, LOCK_KIND_STRING } lock_kind;

/* A lock and one of its holders. An exclusive lock and a string have one holder. */
typedef struct lock_state {
    lock_kind kind;
    bool is_shared;   /* the lock may have further holders, which are all shared */
    lock_token token; /* empty: none of the holders in particular */
    int64_t fence;    /* grows with every new holder; the last of a run; 0 for a string */
    int64_t lease_ms; /* the lease last granted or extended to; 0 for a string */
    int64_t left_us;  /* time until the lease ends; 0 or less: ended; 0 for a string */
} lock_state;

/* A hold that goes on, however long its session is away. */
#define LOCK_NO_GRACE (-1)

typedef struct lock_request {
    lock_token token;
    int64_t lease_ms;    /* of the stored lock: 0 until the session is known, if PX is missing */
    int64_t fence;       /* the lowest fence the client accepts; 0: any */
    struct session *via; /* the session that the outcome of a wait goes to; NULL: none */
    uint32_t limit_ms;   /* PX of a hold that ends with the session via; 0: none */
    uint32_t wait_ms;    /* 0: do not wait */
    int32_t max_holders; /* SHARED MAX: the client counts as one of so many; 0: no limit */
    int32_t fences;      /* FENCES: reserves a run of so many; 0: one fence */
    int32_t grace_ms;    /* how long the hold goes on without its session, or LOCK_NO_GRACE */
    bool is_session;     /* the lock ends with the session via; without one, with the connection */
    bool is_shared;
} lock_request;

typedef enum lock_verdict {
    LOCK_GRANT,      /* the lock is free: the caller becomes the holder, with a new fence */
    LOCK_JOIN,       /* the lock is shared: the caller becomes one more holder */
    LOCK_AGAIN,      /* the caller already holds the lock: same fence */
    LOCK_REFUSE,     /* other tokens hold the lock */
    LOCK_OTHER_MODE, /* the caller holds the lock in the other mode, which cannot change */
} lock_verdict;

/* May the request have the lock?
 *
 *   held           the lock; NULL: it is free. Of several holders, held shows the one that has the
 *                  token of the request, if there is one
 *   holder_count   how many hold the lock
 *   max_holders    how many may hold any lock
 *
 * The caller has removed the holders whose lease has ended. On a replica, which ends no lease, such
 * a holder still counts. */
lock_verdict lock_judge_acquire(const lock_state *held, int64_t holder_count,
                                const lock_request *request, int64_t max_holders);

/* Does a request for lease_ms by the holder restart the lease? Yes, unless more than lease_ms is
 * left. A lease with exactly lease_ms left restarts as well, so that the replicas hear of the
 * request: their lease may have begun earlier, as that of a renamed lock does. */
bool lock_restarts(const lock_state *held, int64_t lease_ms);

/* May the request share the lock with its holders? */
bool lock_has_room(const lock_state *held, int64_t holder_count, const lock_request *request,
                   int64_t max_holders);

/* The fence for the reply to a request that was granted: of a run, the first one. */
static inline int64_t lock_first_fence(const lock_state *held, const lock_request *request) {
    return held->fence - (request->fences > 0 ? request->fences - 1 : 0);
}

/* Does token hold the lock? RELEASE and EXTEND rely on the same rule. held is NULL if the lock
 * is free. */
bool lock_is_held_by(const lock_state *held, lock_token token);

#endif
