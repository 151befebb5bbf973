/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_state.h - what a lock is, and who may do what to it.
 *
 * Pure: no Redis, no clock, no I/O. */
#ifndef DLOCK_LOCK_STATE_H
#define DLOCK_LOCK_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOCK_TOKEN_MAX 256

/* The longest lease the stored form has room for: 2^32 - 1 ms, a good 49 days. */
#define LOCK_LEASE_MAX_MS INT64_C(4294967295)

/* A fence read from a file or from the wire must be below this; see fence.h. */
#define LOCK_FENCE_LIMIT (INT64_C(1) << 62)

/* The holder's identity, any bytes. Borrowed: valid as long as whatever it was taken from. */
typedef struct lock_token {
    const char *bytes;
    size_t length;
} lock_token;

/* A lock of ours, or a plain string: somebody's SET NX PX lock, which has neither fence nor
 * lease. */
typedef enum lock_kind { LOCK_KIND_LOCK, LOCK_KIND_STRING } lock_kind;

typedef struct lock_state {
    lock_kind kind;
    lock_token token;
    int64_t fence;    /* grows with every new holder; 0 for a string */
    int64_t lease_ms; /* the lease that was last granted or extended to; 0 for a string */
    int64_t left_us;  /* until the lease ends; 0 or less: it has ended; 0 for a string */
} lock_state;

typedef struct lock_request {
    lock_token token;
    int64_t lease_ms;
    int64_t wait_ms; /* 0: do not wait */
    int64_t fence;   /* the holder's fence must be at least this; 0: any */
    bool is_session; /* the lock ends with the connection */
} lock_request;

typedef enum lock_verdict {
    LOCK_GRANT,  /* the lock is free: the caller becomes the holder, with a new fence */
    LOCK_KEEP,   /* the caller holds it already, for at least as long as asked: change nothing */
    LOCK_RENEW,  /* the caller holds it already: same fence, the lease starts anew */
    LOCK_REFUSE, /* somebody else holds it */
} lock_verdict;

/* May this request have the lock? held is NULL when the lock is free; a lock whose lease has ended
 * counts as free. */
lock_verdict lock_judge_acquire(const lock_state *held, const lock_request *request);

/* Does token hold the lock? The one rule behind RELEASE and EXTEND. held is NULL when the lock is
 * free. */
bool lock_is_held_by(const lock_state *held, lock_token token);

#endif
