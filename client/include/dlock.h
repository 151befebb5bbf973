/* SPDX-License-Identifier: BSD-3-Clause */
/* dlock.h - distributed locks inside Redis, from C.
 *
 *     dlock_client_options options;
 *     dlock_client_options_init(&options);
 *     options.urls = (const char *const[]){"redis://127.0.0.1:6379"};
 *     options.url_count = 1;
 *
 *     dlock_client *client;
 *     dlock_lock *lock;
 *     if (dlock_client_new(&client, &options) != DLOCK_OK) ...
 *     if (dlock_lock_new(&lock, client, "nightly-report", NULL) != DLOCK_OK) ...
 *     if (dlock_acquire(lock, 5000) == DLOCK_OK) {
 *         write_report(dlock_fence(lock));
 *         dlock_release(lock);
 *     }
 *     dlock_lock_free(lock);
 *     dlock_client_free(client);
 *
 * Times are milliseconds, on a clock that nobody sets and that goes on while the machine sleeps
 * (CLOCK_BOOTTIME). Pointers passed in are borrowed for the call. The free functions accept NULL.
 * There is no global state, but for OpenSSL's, and no signal handler. SIGPIPE is never raised.
 * After fork() the child must not use what it inherited, not even to free it; it may make a client
 * of its own. A thread must not be ended by pthread_cancel() within a call.
 *
 * "Threads:" any = every thread at any time; owner = one thread at a time for a given lock. */
#ifndef DLOCK_H
#define DLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DLOCK_API __attribute__((visibility("default")))
#else
#define DLOCK_API
#endif

/* Numbers are ABI: never renumbered, never reused. 1..99 are answers: the service worked and said
 * no. 100.. are failures: it could not be asked, or not understood. */
typedef enum dlock_status {
    DLOCK_OK = 0,
    DLOCK_BUSY = 1,        /* someone else holds it (asked only once) */
    DLOCK_TIMEOUT = 2,     /* still busy when the wait ran out */
    DLOCK_NOT_HELD = 3,    /* extend or release of a lock this handle does not hold */
    DLOCK_LOST = 4,        /* it was held; the lease ended, or another took it, before this call */
    DLOCK_CANCELED = 5,    /* dlock_cancel() ended the wait */
    DLOCK_QUEUE_FULL = 6,  /* too many threads of this process, or waiters on the server, wait */
    DLOCK_NO_QUORUM = 7,   /* too few of several servers agreed; what they did is being undone */
    DLOCK_NO_REPLICAS = 8, /* too few replicas acknowledged; undone */
    DLOCK_IN_DOUBT = 100,  /* sent, but no answer: it may have happened; it is being withdrawn */
    DLOCK_UNREACHABLE = 101, /* nothing was sent */
    DLOCK_REFUSED = 102,     /* authentication, permission, or a server that refuses writes */
    DLOCK_PROTOCOL = 103,    /* an answer we cannot read, or a server without the dlock module */
    DLOCK_INVALID = 104,     /* a caller's mistake */
    DLOCK_NO_MEMORY = 105    /* or no descriptor or thread to be had */
} dlock_status;

#define DLOCK_NO_WAIT      0
#define DLOCK_WAIT_FOREVER (-1) /* until cancelled; never the default */

typedef struct dlock_client dlock_client; /* where the service is; shared by threads */
typedef struct dlock_lock dlock_lock;     /* one claim on one name; one thread at a time */

typedef enum dlock_wait_mode {
    DLOCK_WAIT_AUTO = 0, /* DLOCK_WAIT_SERVER; with several servers DLOCK_WAIT_SPIN, always */
    DLOCK_WAIT_SPIN = 1,
    DLOCK_WAIT_SERVER = 2
} dlock_wait_mode;

typedef enum dlock_state {
    DLOCK_FREE = 0, /* not asked for, or given back */
    DLOCK_HELD = 1,
    DLOCK_SUSPECT = 2, /* held, but a renewal is overdue */
    DLOCK_GONE = 3     /* it was held; its validity has ended */
} dlock_state;

typedef enum dlock_event {
    DLOCK_EVENT_ACQUIRED = 1,
    DLOCK_EVENT_RELEASED = 2, /* by its holder, who may have lost it before */
    DLOCK_EVENT_SUSPECT = 3,  /* a renewal is overdue; why: what the last attempt said */
    DLOCK_EVENT_LOST = 4      /* not later than the end of its validity */
} dlock_event;

/* name: with the prefix. Acquired and released are told in the thread of the call, the others in a
 * thread of the client, one after the other: must not block, and must not free the lock. Acquired
 * is the first and released the last that is told of an acquisition. */
typedef void (*dlock_event_fn)(void *arg, dlock_event event, const char *name, dlock_status why);

/* A line without a newline. is_error: the service could not be asked. Must not block for long. */
typedef void (*dlock_log_fn)(void *arg, bool is_error, const char *line);

/* 0 always means "the default". Fields are only ever appended: a program built against an older
 * page works, one built against a newer page gets DLOCK_INVALID if it asks for what is not here.
 * A URL with rediss:// is one with redis:// and TLS: the files for it are PEM, and are read when
 * the client is made. */
typedef struct dlock_client_options {
    size_t struct_size;
    /* redis://[[user:]password@]host[:port][/db], unix:///path[?db=n],
     * redis+sentinel://[[user:]password@]host[:port],.../mastername[?db=n], or
     * redis+cluster://[[user:]password@]host[:port],... Several of the first two, up to 15: servers
     * that know nothing of each other, of which a majority decides (Redlock). See
     * client/README.md */
    const char *const *urls;
    size_t url_count;
    const char *prefix;          /* put before every name, e.g. "order:product:" */
    uint32_t connect_timeout_ms; /* default 1000 */
    uint32_t io_timeout_ms;      /* default 200, per command */
    dlock_wait_mode wait_mode;   /* default: the server parks us */
    uint32_t spin_min_ms;        /* default 10 */
    uint32_t spin_random_ms;     /* default 10: the pause is random in [min, min + random) */
    uint32_t spin_max_ms;  /* 0: no growth; else the pause doubles with each attempt up to this */
    uint32_t pool_max;     /* connections per server; default 64 */
    uint32_t hotspot_auto; /* 0: only names that were added; else up to this many more, found
                                  * by contention, have a local lock */
    uint32_t hotspot_queue_max; /* threads that may wait for a local lock; default 1000 */
    uint32_t hotspot_hand_on;   /* how often in a row a lock is passed on to the next thread here
                                  * without a word to the server; default 0 = never */
    const char *tls_ca_file;   /* rediss://: who signs servers; default: whom this machine trusts */
    const char *tls_cert_file; /* our own certificate and its key, if the server wants one */
    const char *tls_key_file;
    dlock_event_fn on_event; /* told what becomes of every lock, or NULL */
    void *event_arg;
    const struct dlock_handler *const *handlers; /* see dlock_spi.h; copied */
    size_t handler_count;
    const struct dlock_backend *backend; /* a store instead of urls, see dlock_spi.h; copied */
    const char *access_log_dir;          /* NULL: none; else dlock-access.log is written there */
    size_t access_log_keep;              /* how many files of past days are kept; default 7 */
    dlock_log_fn access_log; /* instead of a file: gets each line, in the thread of the call */
    void *access_log_arg;
} dlock_client_options;

typedef struct dlock_lock_options {
    size_t struct_size;
    uint32_t lease_ms;       /* default 10000; at least 10 */
    uint32_t renew_every_ms; /* 0: no renewal; else it is extended in the background, as long as it
                              * is held and its process lives. lease_ms / 3 is a good choice */
    uint32_t max_hold_ms;    /* 0: no bound; else it is not renewed beyond this, from acquire */
    uint32_t min_replicas;   /* that must acknowledge the grant, and each extension */
    uint32_t replica_timeout_ms; /* in this time; default io_timeout_ms */
    bool session;      /* the server gives it back at once when our connection to it ends */
    const char *token; /* NULL: a fresh random one per acquisition. 1..256 bytes; then nothing is
                        * withdrawn in the background, as the token may be in use again */
} dlock_lock_options;

typedef struct dlock_timings {
    size_t struct_size;
    double local_ms;   /* of the last acquire: before the service was asked for the first time */
    double remote_ms;  /* from then on */
    uint32_t attempts; /* how often it was asked */
} dlock_timings;

typedef struct dlock_client_stats {
    size_t struct_size;
    uint64_t acquired, busy, timeouts, queue_full, failures, released, lost;
    uint64_t renewed;  /* extensions in the background */
    uint64_t hand_ons; /* of acquired: those that were passed on */
    uint64_t commands; /* sent to servers */
    uint64_t waiting;  /* threads in line for a local lock just now */
} dlock_client_stats;

static inline void dlock_client_options_init(dlock_client_options *options) {
    memset(options, 0, sizeof(*options));
    options->struct_size = sizeof(*options);
}

static inline void dlock_lock_options_init(dlock_lock_options *options) {
    memset(options, 0, sizeof(*options));
    options->struct_size = sizeof(*options);
}

/* Major * 10000 + minor * 100 + patch, of the library that runs. Threads: any. */
DLOCK_API int dlock_version(void);

/* "DLOCK_BUSY", and what it means in a few words. Never NULL. Threads: any. */
DLOCK_API const char *dlock_status_name(dlock_status status);
DLOCK_API const char *dlock_status_text(dlock_status status);

/* Checks the options and reads the files of TLS, does no network I/O. On anything but DLOCK_OK *out
 * is NULL. DLOCK_INVALID: see dlock_options_error(). Threads: any. */
DLOCK_API dlock_status dlock_client_new(dlock_client **out, const dlock_client_options *options);

/* What is wrong with these options, for people; "" when nothing is. It is written to text. Threads:
 * any. */
DLOCK_API void dlock_options_error(const dlock_client_options *options, char *text, size_t size);

/* All locks of the client must have been freed. What is still being withdrawn gets one more chance,
 * for one I/O timeout in all. Threads: none may use it. */
DLOCK_API void dlock_client_free(dlock_client *client);

/* DLOCK_OK: the server, or a majority of several, answers, lets us in and has the module. Threads:
 * any. */
DLOCK_API dlock_status dlock_client_ping(dlock_client *client, int64_t timeout_ms);

/* stats->struct_size must be set. Threads: any. */
DLOCK_API void dlock_client_get_stats(const dlock_client *client, dlock_client_stats *stats);

/* From now on the threads of this client compete among themselves first for this name (without
 * the prefix), and one of them goes out to the service. Removing it harms nobody who holds or
 * awaits the lock. See client/README.md. Threads: any. */
DLOCK_API dlock_status dlock_hotspot_add(dlock_client *client, const char *name);
DLOCK_API dlock_status dlock_hotspot_remove(dlock_client *client, const char *name);

/* No I/O. The name is 1 byte or more; the client must outlive the lock. Threads: any. */
DLOCK_API dlock_status dlock_lock_new(dlock_lock **out, dlock_client *client, const char *name,
                                      const dlock_lock_options *options);

/* Releases it first if it is held. Threads: owner. */
DLOCK_API void dlock_lock_free(dlock_lock *lock);

/* The same as dlock_acquire(lock, DLOCK_NO_WAIT). Threads: owner. */
DLOCK_API dlock_status dlock_try_acquire(dlock_lock *lock);

/* Takes the lock, waiting for it up to wait_ms. DLOCK_NO_WAIT asks exactly once, and says
 * DLOCK_BUSY where others say DLOCK_TIMEOUT. DLOCK_LOST: it was granted, but the answer took as
 * long as the lease. A service that cannot be reached is tried again while time is left. Returns by
 * wait_ms plus one I/O timeout at the very worst (and replica_timeout_ms, with min_replicas). On a
 * handle that holds the lock it succeeds at once without a word to the server, and needs one more
 * dlock_release(); DLOCK_LOST if the lease has ended meanwhile. Threads: owner. */
DLOCK_API dlock_status dlock_acquire(dlock_lock *lock, int64_t wait_ms);

/* The lease now ends lease_ms from now (0: the lock's own; else 10 at least). DLOCK_LOST: it has
 * ended before, or the server says it is not ours any more. On a failure the lock is held as long
 * as it was before, and after DLOCK_IN_DOUBT as long as is certain either way. Threads: owner. */
DLOCK_API dlock_status dlock_extend(dlock_lock *lock, uint32_t lease_ms);

/* Gives it back, at the last level of a lock that was taken several times. The handle is free
 * whatever comes back: DLOCK_LOST means that the lock had ended before, a failure means that the
 * release goes on in the background, if it can, until the lease ends. Threads: owner. */
DLOCK_API dlock_status dlock_release(dlock_lock *lock);

/* The acquire that goes on ends with DLOCK_CANCELED, unless it has the lock already; if none
 * goes on, the next one that would ask the service does. A cancel that comes while an acquire
 * returns may be forgotten, so a program that wants to end keeps a flag of its own. Threads:
 * any, and signal handlers. */
DLOCK_API void dlock_cancel(dlock_lock *lock);

/* By the local clock alone: one atomic load. Threads: any. */
DLOCK_API dlock_state dlock_get_state(const dlock_lock *lock);

/* How long the lock is certainly ours: counted from before the request was sent, less an allowance
 * for clocks that do not run alike (1 % and 2 ms); and, if it is renewed or somebody is to be told
 * of its loss, less the time that takes (2 %, 50 ms at most). 0 when it is not. Threads: any. */
DLOCK_API int64_t dlock_remaining_ms(const dlock_lock *lock);

/* A descriptor that becomes readable once the lock is lost, and stays so until the release; for
 * poll(2) and event loops. It belongs to the lock and lives as long; do not read or close it.
 * Negative: none is to be had. Threads: owner. */
DLOCK_API int dlock_lost_fd(dlock_lock *lock);

/* The number of this grant: larger than of any holder of this name before (with hotspot_hand_on:
 * in another process). It stays until the release, even when the lease has ended: that is when
 * the resource must refuse it. 0 when not held. Threads: owner. */
DLOCK_API uint64_t dlock_fence(const dlock_lock *lock);

/* Of the last acquire; "" before the first. Valid until the next one. Threads: owner. */
DLOCK_API const char *dlock_token(const dlock_lock *lock);

/* timings->struct_size must be set. Threads: owner. */
DLOCK_API void dlock_get_timings(const dlock_lock *lock, dlock_timings *timings);

/* What went wrong in the last call that did not return DLOCK_OK, for people; "" if none. Passwords
 * are never in it. Valid until the next call. Threads: owner. */
DLOCK_API const char *dlock_last_error(const dlock_lock *lock);

/* -- without a handle: for tools and operators
 *
 * Each returns by timeout_ms, or the I/O timeout after it at the very worst. why: what went wrong
 * is written there, for people, if it is not NULL; "" when nothing did. DLOCK_INVALID: also where
 * the store is a program's own. */

/* Of a lock that somebody holds by that token: see dlock_token(). DLOCK_NOT_HELD: the token does
 * not hold it, and nothing has changed. Threads: any. */
DLOCK_API dlock_status dlock_release_token(dlock_client *client, const char *name,
                                           const char *token, char *why, size_t why_size);
DLOCK_API dlock_status dlock_extend_token(dlock_client *client, const char *name, const char *token,
                                          uint32_t lease_ms, char *why, size_t why_size);

typedef struct dlock_inspection {
    size_t struct_size;
    const char *server; /* host:port or the path of a socket */
    const char *name;   /* without the prefix. All three: until the call, or function, returns */
    size_t name_length;
    const char *token;
    size_t token_length;
    uint64_t fence;   /* 0: of a plain string */
    int64_t ttl_ms;   /* left; negative: it does not end by itself */
    int64_t lease_ms; /* asked for last */
    int64_t since_ms; /* when it was granted: unix time */
    int64_t waiters;  /* clients in line */
    int64_t session;  /* the id of the connection it ends with, or 0 */
    bool is_string;   /* somebody's SET NX PX */
} dlock_inspection;

/* False: that was enough. */
typedef bool (*dlock_list_fn)(void *arg, const dlock_inspection *lock);

/* Tells of the lock; of several independent servers, what each of them has. DLOCK_NOT_HELD: it is
 * free. Threads: any. */
DLOCK_API dlock_status dlock_inspect(dlock_client *client, const char *name, int64_t timeout_ms,
                                     dlock_list_fn tell, void *arg, char *why, size_t why_size);

/* Tells of every lock whose name (without the prefix) matches the pattern, as KEYS of Redis has it;
 * NULL: all. On every server, in no order. One that is taken or given back meanwhile may be told
 * of or not, and one may be told of twice. Plain strings are not found. Threads: any. */
DLOCK_API dlock_status dlock_list(dlock_client *client, const char *pattern, int64_t timeout_ms,
                                  dlock_list_fn tell, void *arg, char *why, size_t why_size);

/* Tells, of every server, each field of INFO dlock: see module/README.md. Threads: any. */
typedef void (*dlock_info_fn)(void *arg, const char *server, const char *field, const char *value);
DLOCK_API dlock_status dlock_server_info(dlock_client *client, int64_t timeout_ms,
                                         dlock_info_fn tell, void *arg, char *why, size_t why_size);

/* -- on every way out */

/* Takes the lock, runs body, gives the lock back when body returns, unless it has done so
 * itself. Body runs in any case and is told whether it was got, or why not: got is what
 * dlock_acquire() returned, and if there was no memory for a handle, lock is NULL. The result is
 * body's. Threads: any. */
typedef int (*dlock_body)(dlock_lock *lock, dlock_status got, void *arg);
DLOCK_API int dlock_guard(dlock_client *client, const char *name, int64_t wait_ms,
                          const dlock_lock_options *options, dlock_body body, void *arg);

/* The same for a block, with GCC and Clang:
 *
 *     {
 *         DLOCK_SCOPED(held, client, "nightly-report", 5000, NULL);
 *         if (held.got != DLOCK_OK) return;        // nothing to give back
 *         write_report(dlock_fence(held.lock));
 *     }                                            // given back, on every way out
 *
 * held.lock is NULL if there was no memory for a handle. */
typedef struct dlock_scope {
    dlock_lock *lock;
    dlock_status got;
} dlock_scope;

DLOCK_API dlock_scope dlock_scope_begin(dlock_client *client, const char *name, int64_t wait_ms,
                                        const dlock_lock_options *options);
DLOCK_API void dlock_scope_end(dlock_scope *scope);

#if defined(__GNUC__)
#define DLOCK_SCOPED(variable, client, name, wait_ms, options)                                     \
    dlock_scope variable __attribute__((cleanup(dlock_scope_end))) =                               \
        dlock_scope_begin(client, name, wait_ms, options)
#endif

#ifdef __cplusplus
}
#endif

#endif
