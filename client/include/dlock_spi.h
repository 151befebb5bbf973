/* SPDX-License-Identifier: BSD-3-Clause */
/* dlock_spi.h - for those who extend libdlock: handlers around every call, and other stores.
 *
 * A call goes through the chain:
 *
 *     dlock_acquire()                                        dlock_release()
 *        |                                                      |
 *        +-> handler 1 -> handler 2 -> ... -> waiting -> backend <-+
 *
 * Each handler is given the call and decides what to do before and after the rest of the chain,
 * which it runs with dlock_next(). So an acquire passes the handlers in their order; and what they
 * do after dlock_next() runs in the opposite order, the backend first. A handler that does not call
 * dlock_next() answers the call itself, and nothing behind it hears of it.
 *
 * The library's own parts are handlers of the same kind: the access log (order 1000), the local
 * hotspot layer (2000) and waiting (3000, the last). Yours come where their order puts them:
 * below 1000 sees every call (but not the deeper levels of a lock that is held already), between
 * 2000 and 3000 only those that go out to the service. */
#ifndef DLOCK_SPI_H
#define DLOCK_SPI_H

#include "dlock.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DLOCK_TOKEN_SIZE = 257, DLOCK_CAUSE_SIZE = 256 };

enum { DLOCK_ORDER_ACCESS_LOG = 1000, DLOCK_ORDER_HOTSPOT = 2000, DLOCK_ORDER_WAITING = 3000 };

typedef enum dlock_operation {
    DLOCK_ACQUIRING = 1,
    DLOCK_RELEASING = 2,
    DLOCK_EXTENDING = 3
} dlock_operation;

/* One call, on its way through the chain. Times are microseconds of CLOCK_BOOTTIME. */
typedef struct dlock_call {
    size_t struct_size;
    dlock_operation operation;
    const char *name;    /* with the prefix */
    uint32_t lease_ms;   /* asked for; whoever grants an acquire may have another */
    int64_t started_us;  /* when the call began */
    int64_t deadline_us; /* no attempt begins after it, except for the first; INT64_MAX: for ever */
    void **slot;         /* this handler's own pointer in this lock's handle, NULL at first. Whoever
                          * puts something there takes it away in the last release */

    /* The lock: set before a release or extend, and by whoever grants an acquire. */
    char token[DLOCK_TOKEN_SIZE];
    uint64_t fence;
    int64_t asked_us; /* the lease is counted from here */

    /* The result, apart from the status. */
    int64_t remote_us;            /* when the service was first asked; 0: it was not */
    uint32_t attempts;            /* how often it was asked */
    char cause[DLOCK_CAUSE_SIZE]; /* of anything but DLOCK_OK, for people */
} dlock_call;

typedef struct dlock_chain dlock_chain; /* what is behind a handler; only for dlock_next() */

/* Runs the rest of the chain: once, or several times by a handler that tries again. An acquire that
 * was sent and came to nothing is being withdrawn, and is DLOCK_IN_DOUBT from then on. */
DLOCK_API dlock_status dlock_next(dlock_chain *rest, dlock_call *call);

/* 0 when the deadline has passed; INT64_MAX for ever. */
DLOCK_API int64_t dlock_call_left_ms(const dlock_call *call);

/* True once dlock_cancel() was called for it. Long work in a handler or backend should look. */
DLOCK_API bool dlock_call_is_canceled(const dlock_call *call);

/* A handler. Its functions are called by many threads at once. NULL functions are passed by. */
typedef struct dlock_handler {
    size_t struct_size;
    const char *name; /* for people */
    int order;        /* smaller is nearer to the caller; equal: as given */
    void *arg;
    /* Acquire, release and extend alike: call->operation says which. The result is the answer to
     * the call. DLOCK_OK without dlock_next(): token, fence and asked_us are set, and the handler
     * answers for the lock; it must have neither renew_every_ms nor session, as renewals go to the
     * service directly. An acquire that failed behind it is to be undone here. Must not block
     * beyond the deadline, must not keep the call. */
    dlock_status (*handle)(void *arg, dlock_call *call, dlock_chain *rest);
    /* Something behind it said anything but DLOCK_OK: told to each handler that was passed, the
     * last one first, before its dlock_next() returns. Cannot change the answer. */
    void (*on_error)(void *arg, const dlock_call *call, dlock_status status);
} dlock_handler;

/* A store: anything that can add-if-absent and compare-and-delete. Its functions are called by many
 * threads at once; each asks once, sets call->cause to say why not, and returns by limit_us. */
typedef struct dlock_backend {
    size_t struct_size;
    const char *name;
    void *arg;
    /* Stores call->name with call->token for call->lease_ms unless another token is there.
     * DLOCK_OK: call->fence and call->asked_us are set; asked_us is from before the store was
     * asked. The same token again is DLOCK_OK with the same fence. DLOCK_BUSY: another holds it.
     * DLOCK_UNREACHABLE (nothing was sent) and DLOCK_IN_DOUBT (no answer) are tried again while
     * time is left. */
    dlock_status (*acquire)(void *arg, dlock_call *call, int64_t limit_us);
    /* DLOCK_OK: call->asked_us is set. DLOCK_LOST: the token does not hold it. */
    dlock_status (*extend)(void *arg, dlock_call *call, int64_t limit_us);
    /* DLOCK_LOST: the token did not hold it, nothing changed. */
    dlock_status (*release)(void *arg, dlock_call *call, int64_t limit_us);
    /* With the client, or when dlock_client_new() fails for any reason but DLOCK_INVALID; may be
     * NULL. */
    void (*free)(void *arg);
} dlock_backend;

#ifdef __cplusplus
}
#endif

#endif
