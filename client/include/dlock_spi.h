/* SPDX-License-Identifier: BSD-3-Clause */
/* dlock_spi.h - for programs that extend libdlock: handlers around every call, and other stores.
 *
 * A call goes through the chain and comes back:
 *
 *     dlock_acquire(), dlock_release(), dlock_extend()
 *        |  enter ->   enter ->          enter ->
 *     handler 1     handler 2   ...   waiting -- deployment or store
 *        |  <- leave   <- leave          <- answer
 *
 * On the way in, each handler may let the call pass, answer it, or suspend it. On the way out, each
 * handler that let the call pass sees the answer, the last one first, and may change it. So an
 * acquire meets the handlers in their order, and a release is done at the service before leave() of
 * any of them.
 *
 * The library's own parts are handlers of the same kind: the access log (order 1000), the local
 * hotspot layer (2000) and waiting (3000, the last). A handler below 1000 sees every call (but not
 * the deeper levels of a lock that is held already), one between 2000 and 3000 only those that go
 * out to the service. */
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
    const char *name;     /* with the prefix; several names: with blanks between them */
    uint32_t lease_ms;    /* asked for; whoever grants an acquire may set another */
    dlock_mode mode;      /* of the lock: the same in all calls of a handle */
    uint32_t max_holders; /* of a shared lock, as in dlock_lock_options */
    int64_t started_us;   /* when the call began */
    int64_t deadline_us; /* no attempt begins after it, except for the first; INT64_MAX: for ever */
    void **slot; /* this handler's own pointer in the lock's handle, NULL at first. A handler that
                  * puts something there takes it away in the last release */

    /* The lock: set before a release or extend, and by whoever grants an acquire. */
    char *token; /* room for DLOCK_TOKEN_SIZE bytes */
    uint64_t fence;
    int64_t asked_us; /* the lease counts from here */

    /* The answer. */
    dlock_status status;
    int64_t remote_us; /* when the service was first asked; 0: it was not */
    uint32_t attempts; /* how often it was asked */
    const char *cause; /* of anything but DLOCK_OK, for people: dlock_call_explain() */

    const void *internal; /* of the library */
} dlock_call;

typedef enum dlock_step {
    DLOCK_PASS = 0,   /* on to the next handler; leave() is called on the way out */
    DLOCK_ANSWER = 1, /* call->status is the answer; nothing behind hears of the call */
    DLOCK_SUSPEND = 2 /* not yet: enter() is called again after dlock_call_resume(), when the call
                       * is canceled, or for nothing */
} dlock_step;

/* A handler. Its functions are called by many threads at once, each in the thread of its call (of
 * an asynchronous call: in the threads that start and dispatch it, which should not block at all),
 * and must not block beyond the call's deadline. Acquire, extend, release and guarded commands of
 * the lock whose call it is are refused meanwhile: DLOCK_INVALID. NULL functions are skipped. */
typedef struct dlock_handler {
    size_t struct_size;
    const char *name; /* for people */
    int order;        /* smaller is nearer to the caller; equal: as given */
    void *arg;
    /* Acquire, release and extend alike: call->operation says which. DLOCK_ANSWER with DLOCK_OK to
     * an acquire: token, fence and asked_us are set, and the handler answers for the lock; the lock
     * must have neither renew_every_ms nor session, as renewals go to the service directly.
     * DLOCK_ANSWER to a release of a lock that the service has granted: with DLOCK_OK, the handler
     * answers for the lock, which the token holds until the lease ends; with another status, the
     * library releases the lock in the background. A handler that limits the flow of calls answers
     * with DLOCK_LIMITED and a cause. */
    dlock_step (*enter)(void *arg, dlock_call *call);
    /* call->status is what the handlers behind have answered: from 100 on it is a failure, see
     * dlock_is_failure(). An acquire that failed is undone here. May change status and cause, but
     * not DLOCK_OK of an acquire into something else: the lock is held. */
    void (*leave)(void *arg, dlock_call *call);
} dlock_handler;

static inline void dlock_handler_init(dlock_handler *handler) {
    memset(handler, 0, sizeof(*handler));
    handler->struct_size = sizeof(*handler);
}

/* Lets a suspended call go on: its enter() is called again in the thread of the call. The call must
 * not have ended. Threads: any. */
DLOCK_API void dlock_call_resume(dlock_call *call);

/* Sets call->cause: a copy of the text, cut at DLOCK_CAUSE_SIZE. Threads: that of the call. */
DLOCK_API void dlock_call_explain(dlock_call *call, const char *cause);

/* 0 when the deadline has passed; INT64_MAX for ever. Threads: any. */
DLOCK_API int64_t dlock_call_left_ms(const dlock_call *call);

/* True once dlock_cancel() was called for the call; in a store also when the library has given the
 * call up at its limit. Long work in a handler or store should look. Threads: any. */
DLOCK_API bool dlock_call_is_canceled(const dlock_call *call);

/* A store: anything that can add-if-absent and compare-and-delete. Its functions may block and are
 * called by threads of the library, several at once: at most 8 for acquires, 32 more for acquires
 * that wait, and 8 of their own for releases and extensions. Each function tries once, says why
 * not by dlock_call_explain(), and returns by limit_us. The call is a copy: only name, token,
 * lease_ms, mode, max_holders, deadline_us, fence, asked_us and cause are used.
 *
 * Without waits, the library asks again after a pause while a lock is busy. A store that learns
 * when a lock becomes free sets waits, and its acquire() waits itself:
 *   - until call->deadline_us (INT64_MAX: for ever), and then returns DLOCK_BUSY. A deadline that
 *     has passed, or 0, means one try without waiting: for dlock_try_acquire(), with
 *     DLOCK_WAIT_SPIN, or when 32 acquires of the client wait already.
 *   - while dlock_call_is_canceled(call) is false, else returns DLOCK_BUSY. Look at least every
 *     100 ms: dlock_cancel() and dlock_lock_free() do not wait for the store, but
 *     dlock_client_free() does.
 *   - while release() and extend() of the same name go on working.
 * After the wait, just before taking the lock, acquire() sets call->asked_us again: the lease
 * counts from there. Otherwise the library extends the lock after a long wait. */
typedef struct dlock_backend {
    size_t struct_size;
    const char *name;
    void *arg;
    /* Stores call->name with call->token for call->lease_ms unless another token is there.
     * DLOCK_OK: call->fence and call->asked_us are set; asked_us is from before the store was
     * asked. The same token again is DLOCK_OK with the same fence. DLOCK_BUSY: another holds it.
     * DLOCK_UNREACHABLE (nothing was sent) and DLOCK_IN_DOUBT (no reply) are tried again while time
     * is left. */
    dlock_status (*acquire)(void *arg, dlock_call *call, int64_t limit_us);
    /* DLOCK_OK: call->asked_us is set. DLOCK_LOST: the token does not hold the lock. Must not make
     * a lease shorter. */
    dlock_status (*extend)(void *arg, dlock_call *call, int64_t limit_us);
    /* DLOCK_LOST: the token did not hold the lock, nothing changed. */
    dlock_status (*release)(void *arg, dlock_call *call, int64_t limit_us);
    /* Called with dlock_client_free(), or when dlock_client_new() fails for any reason but
     * DLOCK_INVALID; may be NULL. */
    void (*free)(void *arg);
    /* acquire() looks at call->mode and call->max_holders, and several tokens can hold a name. Else
     * dlock_lock_new() refuses shared locks, and the store need not look. */
    bool can_share;
    bool waits; /* acquire() waits until call->deadline_us while the lock is busy */
} dlock_backend;

static inline void dlock_backend_init(dlock_backend *backend) {
    memset(backend, 0, sizeof(*backend));
    backend->struct_size = sizeof(*backend);
}

#ifdef __cplusplus
}
#endif

#endif
