/* SPDX-License-Identifier: BSD-3-Clause */
/* dlock.h - distributed locks inside Redis, from C.
 *
 *     dlock_client *client;
 *     dlock_lock *lock;
 *     if (dlock_client_new_url(&client, "redis://127.0.0.1?lease_ms=5000&renew=yes") != 0) ...
 *     if (dlock_lock_new(&lock, client, "nightly-report", NULL) != DLOCK_OK) ...
 *     if (dlock_acquire(lock, 2000) == DLOCK_OK) write_report(dlock_fence(lock));
 *     dlock_lock_free(lock); // releases the lock
 *     dlock_client_free(client);
 *
 * Times are milliseconds, on a clock that nobody sets and that goes on while the machine sleeps
 * (CLOCK_BOOTTIME). Pointers passed in are borrowed for the call. A client or lock that is NULL
 * does no harm: functions with a status return DLOCK_INVALID, and dlock_error() says why; the
 * others do nothing, and return 0, "", DLOCK_STATE_FREE, or -1 for a descriptor.
 * The library has no global state except OpenSSL's, and the text of dlock_error(), of which each
 * thread has its own. It installs no signal handler and never raises SIGPIPE.
 * After fork() the child must not use clients and locks of the parent, not even to free them; a
 * client of the child's own is fine. A thread must not be ended by pthread_cancel() within a call.
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
 * no. 100.. are failures: no request was sent, no usable reply came, or the request was refused. */
typedef enum dlock_status {
    DLOCK_OK = 0,
    DLOCK_BUSY = 1,          /* another holder has the lock (asked only once) */
    DLOCK_TIMEOUT = 2,       /* still busy when the wait ran out */
    DLOCK_NOT_HELD = 3,      /* extend or release of a lock this handle does not hold */
    DLOCK_LOST = 4,          /* the lease ended, or another took the lock, before the call */
    DLOCK_CANCELED = 5,      /* dlock_cancel() or dlock_client_cancel() */
    DLOCK_QUEUE_FULL = 6,    /* too many threads of this process, or waiters on the server, wait */
    DLOCK_NO_QUORUM = 7,     /* too few of several servers agreed; their grants are being undone */
    DLOCK_NO_REPLICAS = 8,   /* too few replicas acknowledged; the grant is released */
    DLOCK_LIMITED = 9,       /* a handler of the program refused the call: flow control */
    DLOCK_IN_DOUBT = 100,    /* sent, but no reply: a lock that was granted is being withdrawn */
    DLOCK_UNREACHABLE = 101, /* nothing was sent */
    DLOCK_REFUSED = 102,     /* authentication, permission, or a server that refuses writes */
    DLOCK_PROTOCOL = 103,    /* an unreadable reply */
    DLOCK_INVALID = 104,     /* a caller's mistake */
    DLOCK_NO_MEMORY = 105,   /* or no descriptor or thread */
    DLOCK_NO_MODULE = 106    /* the server does not have the dlock module */
} dlock_status;

#define DLOCK_NO_WAIT      0
#define DLOCK_WAIT_FOREVER (-1) /* until canceled; never the default */

typedef struct dlock_client dlock_client; /* where the service is; shared by threads */
typedef struct dlock_lock dlock_lock; /* one claim on a name, or several; one thread at a time */

typedef enum dlock_wait_mode {
    DLOCK_WAIT_AUTO = 0,  /* DLOCK_WAIT_SERVER; with several servers DLOCK_WAIT_SPIN, always */
    DLOCK_WAIT_SPIN = 1,  /* try, pause, try again */
    DLOCK_WAIT_SERVER = 2 /* stand in the queue of the server */
} dlock_wait_mode;

/* An option of a lock that the client, or its URL, may have set already. */
typedef enum dlock_choice {
    DLOCK_DEFAULT = 0, /* as the client says; else no */
    DLOCK_YES = 1,
    DLOCK_NO = 2
} dlock_choice;

typedef enum dlock_mode {
    DLOCK_EXCLUSIVE = 0, /* one holder */
    DLOCK_SHARED = 1     /* held together with other shared holders, never with an exclusive one */
} dlock_mode;

typedef enum dlock_module {
    DLOCK_MODULE_REQUIRED = 0,
    DLOCK_MODULE_NONE = 1 /* plain Redis: SET NX PX and scripts. See client/README.md */
} dlock_module;

typedef enum dlock_state {
    DLOCK_STATE_FREE = 0, /* never acquired, or released */
    DLOCK_STATE_HELD = 1,
    DLOCK_STATE_SUSPECT = 2, /* a renewal is overdue, or the connection of the session has ended */
    DLOCK_STATE_LOST = 3 /* the validity has ended or is about to, or the server denies the lock */
} dlock_state;

typedef enum dlock_event {
    DLOCK_EVENT_ACQUIRED = 1,
    DLOCK_EVENT_RELEASED = 2, /* by the holder, maybe after a loss */
    DLOCK_EVENT_SUSPECT = 3,  /* a renewal is overdue. why: the result of the last attempt, never
                               * DLOCK_OK; DLOCK_IN_DOUBT: no reply yet; DLOCK_UNREACHABLE: also if
                               * the connection of a session has ended; DLOCK_TIMEOUT: max_hold_ms
                               * allows no more renewal */
    DLOCK_EVENT_LOST = 4      /* not later than the end of the validity */
} dlock_event;

/* name: with the prefix; several names: with blanks between them. ACQUIRED and RELEASED are told in
 * the thread of the call. SUSPECT and LOST are told in a thread of the client (with no_threads: by
 * dlock_client_dispatch()), one after the other: the function must not block, and must not free the
 * lock. ACQUIRED is the first and RELEASED the last event of an acquisition. */
typedef void (*dlock_event_fn)(void *arg, dlock_event event, const char *name, dlock_status why);

typedef enum dlock_log_level {
    DLOCK_LOG_INFO = 0,
    DLOCK_LOG_WARNING = 1, /* a release that found the lock lost; a connection that is lost */
    DLOCK_LOG_ERROR = 2    /* the call ended in a failure: a status from 100 on; a refused login */
} dlock_log_level;

/* A line without a newline. Must not block for long. */
typedef void (*dlock_log_fn)(void *arg, dlock_log_level level, const char *line);

/* 0 always means "the default". Fields are only ever appended: a program built against an older
 * header works; a program built against a newer header gets DLOCK_INVALID if an option is set that
 * this library does not know. This holds for all structs with a struct_size, which the _init
 * functions set. rediss:// is redis:// with TLS: the files are PEM, and are read when
 * the client is made, and again when they have changed. */
typedef struct dlock_client_options {
    size_t struct_size;
    /* redis://[[user:]password@]host[:port][/db], unix:///path[?db=n],
     * redis+sentinel://[[user:]password@]host[:port],.../mastername[?db=n], or
     * redis+cluster://[[user:]password@]host[:port],...[/db]. Several of the first two, up to 15:
     * independent servers, of which a majority decides (Redlock). Parameters behind a ? set options
     * that are 0 in this struct. See client/README.md */
    const char *const *urls;
    size_t url_count;
    const char *prefix;          /* put before every name, e.g. "order:product:" */
    uint32_t connect_timeout_ms; /* default 1000 */
    uint32_t io_timeout_ms;      /* default 200, per command */
    dlock_wait_mode wait_mode;   /* default: wait in the queue of the server */
    uint32_t spin_min_ms;        /* default 10 */
    uint32_t spin_random_ms;     /* default 10: the pause is random in [min, min + random) */
    uint32_t spin_max_ms;  /* 0: no growth; else the pause doubles with each attempt up to this */
    uint32_t hotspot_auto; /* 0: only names that were added have a local lock; else up to this many
                            * more names, found by contention */
    uint32_t hotspot_queue_max; /* threads that may wait for a local lock; default 1000 */
    uint32_t hotspot_hand_on;   /* how often in a row a lock is passed on to the next thread here
                                 * without a request to the server, up to 9999; default 0 = never */
    const char *tls_ca_file;    /* rediss://: the CA of the servers; default: the trust store of the
                                 * machine */
    const char *tls_cert_file;  /* certificate and key of the client, if the server wants them */
    const char *tls_key_file;
    dlock_event_fn on_event; /* told of the events of every lock, or NULL */
    void *event_arg;
    const struct dlock_handler *const *handlers; /* see dlock_spi.h; copied */
    size_t handler_count;
    const struct dlock_backend *backend; /* a store instead of urls, see dlock_spi.h; copied */
    const char *access_log_dir;          /* NULL: none; else dlock-access.log is written there */
    size_t access_log_keep;              /* how many files of past days are kept; default 7 */
    dlock_log_fn access_log; /* instead of a file: gets each line, in the thread of the call */
    void *access_log_arg;
    const struct dlock_lock_options *lock_defaults; /* NULL, or the values of options that are 0 in
                                                     * the options of a lock; copied */
    bool no_threads;     /* the library starts no thread: the program dispatches (see
                      * dlock_client_dispatch()). Not with backend or access_log_dir; a host name is
                      * looked up within a call or a dispatch, which waits for the name server */
    dlock_module module; /* DLOCK_MODULE_NONE: for servers without the dlock module */
    /* Told what happens to connections, one line each: connected, lost, connected again, no
     * connection and why, a new master, a session that the server has forgotten, a server that is
     * left alone after failures, certificates that were read again. In the thread that calls
     * on_event. */
    dlock_log_fn diagnostic_log;
    void *diagnostic_log_arg;
} dlock_client_options;

typedef struct dlock_lock_options {
    size_t struct_size;
    uint32_t lease_ms;       /* default 10000; at least 10 */
    uint32_t renew_every_ms; /* 0: no renewal; else the lease is extended in the background, as long
                              * as the lock is held and the process lives; at most nine tenths of
                              * lease_ms. lease_ms / 3 is a good choice: see renew */
    uint32_t max_hold_ms;    /* 0: no bound; else no renewal beyond this time after the acquire */
    uint32_t min_replicas;   /* must acknowledge the grant, and each extension */
    uint32_t replica_timeout_ms; /* for the acknowledgements; default io_timeout_ms */
    dlock_choice session; /* the server releases the lock at once when the connection of the session
                           * ends */
    const char *owner; /* NULL, or a label inside the token, which is fresh for every acquisition: 1
                        * to 64 bytes of printable ASCII, no blanks, no colons. Of lock_defaults
                        * or the URL: also in the name of the client's connections */
    dlock_mode mode;   /* DLOCK_SHARED: a reader of a read/write lock, or a permit */
    uint32_t max_holders; /* only with DLOCK_SHARED: granted only while fewer hold the lock; 0: no
                           * limit of its own. Not with several servers: majorities cannot count */
    dlock_choice renew;   /* DLOCK_YES: as renew_every_ms = lease_ms / 3, unless renew_every_ms is
                           * set; with the lease of the client, the lock lasts as long as the
                           * session. DLOCK_NO: no renewal, whatever the client says */
} dlock_lock_options;

/* Where an acquire was answered. */
typedef enum dlock_leg {
    DLOCK_LEG_NONE = 0,
    DLOCK_LEG_LOCAL = 1, /* in this process: the queue of a hot name, or a handler */
    DLOCK_LEG_REMOTE = 2 /* the service, or the way there */
} dlock_leg;

typedef struct dlock_timings {
    size_t struct_size;
    double local_ms;      /* of the last acquire: before the first request to the service */
    double remote_ms;     /* from then on */
    uint32_t attempts;    /* how often the service was asked */
    dlock_leg refused_by; /* of an acquire that did not get the lock: who said no */
} dlock_timings;

typedef struct dlock_client_stats {
    size_t struct_size;
    uint64_t acquired, busy, timeouts, queue_full, failures, released, lost;
    uint64_t renewed;  /* extensions in the background */
    uint64_t hand_ons; /* of acquired: passed on by another thread */
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

static inline void dlock_timings_init(dlock_timings *timings) {
    memset(timings, 0, sizeof(*timings));
    timings->struct_size = sizeof(*timings);
}

static inline void dlock_client_stats_init(dlock_client_stats *stats) {
    memset(stats, 0, sizeof(*stats));
    stats->struct_size = sizeof(*stats);
}

/* A failure, not an answer: it does not tell who holds the lock. Threads: any. */
static inline bool dlock_is_failure(dlock_status status) {
    return status >= DLOCK_IN_DOUBT;
}

/* Major * 10000 + minor * 100 + patch, of the library that runs. Threads: any. */
DLOCK_API int dlock_version(void);

/* "DLOCK_BUSY", and the meaning in a few words. Never NULL. Threads: any. */
DLOCK_API const char *dlock_status_name(dlock_status status);
DLOCK_API const char *dlock_status_text(dlock_status status);

/* A client from its URL alone, e.g. "redis://127.0.0.1?lease_ms=5000&renew=yes&prefix=shop:"; NULL:
 * from the environment variable DLOCK_URL. Every option with a name can be a parameter of the URL,
 * see client/README.md. Several URLs, with blanks between them: independent servers (Redlock).
 * Result and errors as of dlock_client_new(). Threads: any (not while another thread changes the
 * environment). */
DLOCK_API dlock_status dlock_client_new_url(dlock_client **out, const char *url);

/* Checks the options, reads the files of TLS and opens the access log; does no network I/O. On any
 * status but DLOCK_OK *out is NULL, and dlock_error() says why. Threads: any. */
DLOCK_API dlock_status dlock_client_new(dlock_client **out, const dlock_client_options *options);

/* Why the last dlock_client_new(), dlock_client_new_url(), dlock_lock_new() or dlock_watch() of the
 * calling thread failed, or why a call was refused because the handle is NULL, is used by another
 * thread, or has a call under way; for people; "" if nothing failed. Names the option that is
 * wrong; never contains a password. The text belongs to the thread, and is valid until the next
 * such call of the thread. Threads: any. */
DLOCK_API const char *dlock_error(void);

/* Locks and watchers of the client may be freed before or after: they work as before, renewals and
 * events included, and the client lives on until the last one is freed. Only then does it end:
 * withdrawals that are under way get one more chance, and replies in flight are awaited, for one
 * I/O timeout in all. If a function that the library calls, such as done(), frees the last one, the
 * client ends after that function has returned, and calls diagnostic_log until then. Threads: no
 * thread may use the client itself any more. */
DLOCK_API void dlock_client_free(dlock_client *client);

/* DLOCK_OK: the server, or a majority of several, replies, accepts the user and, unless the option
 * module says otherwise, has the module.
 * Threads: any. */
DLOCK_API dlock_status dlock_client_ping(dlock_client *client, int64_t timeout_ms);

/* After dlock_client_stats_init(). Threads: any. */
DLOCK_API void dlock_client_get_stats(const dlock_client *client, dlock_client_stats *stats);

/* From now on the threads of the client compete among themselves first for the name (without the
 * prefix), and only the winner goes out to the service. Removing a name is safe while threads hold
 * or await the lock. See client/README.md. Threads: any. */
DLOCK_API dlock_status dlock_hotspot_add(dlock_client *client, const char *name);
DLOCK_API dlock_status dlock_hotspot_remove(dlock_client *client, const char *name);

/* A name with a local lock. */
typedef struct dlock_hot_name {
    size_t struct_size;
    const char *name; /* without the prefix; until the function returns */
    uint32_t waiting; /* threads in line here */
    bool is_held;     /* a thread here holds the lock, or is on its way to the service */
    bool is_found;    /* by contention (hotspot_auto); else added */
} dlock_hot_name;

/* False: no more. */
typedef bool (*dlock_hotspot_fn)(void *arg, const dlock_hot_name *hot);

/* Tells of each name with a local lock, as of one moment, in no order. tell may call any function
 * of the library. Threads: any. */
DLOCK_API dlock_status dlock_hotspot_list(dlock_client *client, dlock_hotspot_fn tell, void *arg);

/* No I/O. The name is 1 byte or more. On any status but DLOCK_OK *out is NULL, and dlock_error()
 * says why. Threads: any. */
DLOCK_API dlock_status dlock_lock_new(dlock_lock **out, dlock_client *client, const char *name,
                                      const dlock_lock_options *options);

/* One claim on several names, up to 64, taken in one step: all or none, first come, first served,
 * with one token and one fence. Nobody holds a part while waiting for the rest, so such claims
 * never wait for each other in a circle, in whatever order they give their names. The handle is
 * like any other, but for these differences:
 *   - The lock is lost as soon as one name is lost. The others stay locked until dlock_release(),
 *     or until the lease ends.
 *   - dlock_guarded() checks the first name only.
 *   - The names go out to the service without a local lock (hotspot): the local locks would have to
 *     be taken one after the other, and threads could wait for each other in a circle.
 *   - Events, access log and handlers get all names with the prefix, with blanks between them.
 * With several independent servers, the names are taken in one step at each of them.
 *
 * In a cluster, names in one slot (with the same hash tag) are taken in one step. Names in several
 * slots are taken one slot after the other, in the order of the slot numbers, so such claims do not
 * wait for each other in a circle either; and all or none are held at the end. But a claim that
 * waits holds the names of lower slots meanwhile, and overtakes others at one slot that came before
 * it at another one. After a failure it begins anew, at the end of the queues. Each slot has its
 * own fence: dlock_fence() is that of the first name, and can be compared with fences of that name
 * only. A session is refused; with renew each slot is extended.
 *
 * DLOCK_INVALID: also if a name is given twice; with a session, if the names are in several slots;
 * with DLOCK_MODULE_NONE, or with a store of the program's own. Threads: any. */
DLOCK_API dlock_status dlock_lock_new_all(dlock_lock **out, dlock_client *client,
                                          const char *const *names, size_t count,
                                          const dlock_lock_options *options);

/* Releases the lock first if it is held, and waits for that; meanwhile an acquire by this handle is
 * refused, also if on_event makes it, and so is every asynchronous call. One that is under way ends
 * first: done() is called with DLOCK_CANCELED before this function returns, and must not use the
 * lock. A release that is under way goes on in the background. Threads: owner, and no other thread
 * dispatches while a call of the lock is under way. */
DLOCK_API void dlock_lock_free(dlock_lock *lock);

/* The same as dlock_acquire(lock, DLOCK_NO_WAIT). Threads: owner. */
DLOCK_API dlock_status dlock_try_acquire(dlock_lock *lock);

/* Takes the lock, after waiting up to wait_ms. DLOCK_NO_WAIT: asks exactly once, and returns
 * DLOCK_BUSY instead of DLOCK_TIMEOUT; only where the votes of several servers are split, so that
 * maybe nobody has got the lock, asks up to 4 times, with short random pauses. DLOCK_LOST: the lock
 * was granted, but the reply took as long as the lease. A service that cannot be reached is tried
 * again while time is left. Returns by wait_ms plus one I/O timeout at the very worst (and
 * replica_timeout_ms, with min_replicas).
 *
 * On a handle by which this thread holds the lock already, succeeds at once without a request, and
 * needs one more dlock_release(). If another thread holds it by this handle, or waits for it:
 * DLOCK_INVALID; each thread needs a handle of its own. If the lock was lost meanwhile: DLOCK_LOST,
 * unless a call of this handle has returned DLOCK_LOST for the acquisition before. Once one has,
 * the acquisition is over, as after dlock_release(), and this call acquires anew (but not within a
 * scope, which ends first). The thread of an asynchronous acquire is the one that starts
 * it. Threads: owner. */
DLOCK_API dlock_status dlock_acquire(dlock_lock *lock, int64_t wait_ms);

/* The same with a lease of lease_ms (0: the lock's own; else 10 at least) for this acquisition
 * alone; renewals, if any, follow in proportion. On a handle that holds the lock, the lease is
 * extended as by dlock_extend(), and one more dlock_release() is needed. Threads: owner. */
DLOCK_API dlock_status dlock_acquire_for(dlock_lock *lock, int64_t wait_ms, uint32_t lease_ms);

/* The lease ends lease_ms from now (0: the lease of this acquisition; else 10 at least). A lease
 * that ends later stays as it is. DLOCK_LOST: the lease has ended before, or the server says that
 * the lock is not held. On a failure the lock is certainly held as long as before; with a session,
 * DLOCK_UNREACHABLE also means that the connection of the session has ended and is being replaced.
 * Threads: owner. */
DLOCK_API dlock_status dlock_extend(dlock_lock *lock, uint32_t lease_ms);

/* Releases the lock. A handle that acquired the lock several times releases it with the last of as
 * many calls. Then the handle is free, whatever the result: DLOCK_LOST means that the lock had
 * ended before, a failure means that the release goes on in the background until the lease ends.
 * Threads: owner. */
DLOCK_API dlock_status dlock_release(dlock_lock *lock);

/* -- writes that only the holder can make */

typedef enum dlock_reply_kind {
    DLOCK_REPLY_NULL = 0,
    DLOCK_REPLY_INTEGER = 1,
    DLOCK_REPLY_TEXT = 2, /* also a status like OK */
    DLOCK_REPLY_ARRAY = 3 /* only the number of its elements is kept, as the integer */
} dlock_reply_kind;

/* The reply of a command. text and text_size are the caller's: room for a text and a NUL. */
typedef struct dlock_reply {
    size_t struct_size;
    char *text; /* cut if the room is too small; "" for other kinds */
    size_t text_size;
    dlock_reply_kind kind;
    int64_t integer;
    size_t text_length; /* of the whole text: cut if not less than text_size */
} dlock_reply;

/* text NULL and size 0: only kind, integer and text_length are wanted. */
static inline void dlock_reply_init(dlock_reply *reply, char *text, size_t size) {
    memset(reply, 0, sizeof(*reply));
    reply->struct_size = sizeof(*reply);
    reply->text = text;
    reply->text_size = size;
}

/* Runs a Redis command only if the server finds that this handle holds the lock: check and command
 * are one step there (module/commands/guard.md). argv is the command with its arguments, up
 * to 16 MB in all; argvlen, their lengths; NULL: each ends with a NUL. reply may be NULL.
 *
 * DLOCK_OK: the command was run, and replied. DLOCK_LOST: nothing was run; the lock is lost, by the
 * local clock or as the server says. DLOCK_REFUSED: an error of the command, or of the server: see
 * dlock_last_error(). DLOCK_UNREACHABLE: nothing was sent. DLOCK_IN_DOUBT: sent, but no reply came.
 * The command may have been run, and may still be run as long as this acquisition holds the lock;
 * not once dlock_release() has returned DLOCK_OK or DLOCK_LOST. It is never sent twice: see
 * client/README.md. DLOCK_INVALID: several independent servers, plain Redis and stores have no
 * guarded commands. Returns within connect_timeout_ms plus io_timeout_ms. Threads: owner. */
DLOCK_API dlock_status dlock_guarded(dlock_lock *lock, size_t argc, const char *const *argv,
                                     const size_t *argvlen, dlock_reply *reply);

/* Ends the acquire that is under way with DLOCK_CANCELED, unless the lock is granted already, and
 * every later one that would wait or send a request, until dlock_uncancel(). The acquire under way
 * ends even if that follows at once. Extend, release and another level of a lock that is held go
 * on. Threads: any; dlock_cancel() also in signal handlers. */
DLOCK_API void dlock_cancel(dlock_lock *lock);
DLOCK_API void dlock_uncancel(dlock_lock *lock);

/* The same for all locks of the client, those of scopes and later ones included: for a
 * program that is to end. Neither lifts a cancel of a single lock. Threads: any;
 * dlock_client_cancel() also in signal handlers. */
DLOCK_API void dlock_client_cancel(dlock_client *client);
DLOCK_API void dlock_client_uncancel(dlock_client *client);

/* By the local clock alone: one atomic load. Threads: any. */
DLOCK_API dlock_state dlock_get_state(const dlock_lock *lock);

/* How long the lock is certainly held: counted from before the request was sent, less an allowance
 * for clocks that do not run alike (1 % and 2 ms); and, with renewal, on_event or dlock_lost_fd(),
 * less the time for telling of a loss (2 %, 50 ms at most). 0: not held, or not certain. Threads:
 * any. */
DLOCK_API int64_t dlock_remaining_ms(const dlock_lock *lock);

/* A descriptor that becomes readable once the lock is lost, and stays so until the release; for
 * poll(2) and event loops. With renewal, on_event or this descriptor, a lock that is deleted,
 * flushed, overwritten or evicted is lost within a round trip, where one server decides and permits
 * DLOCK.SESSION and DLOCK.WATCH; else at the next renewal, or when the lease ends. The descriptor
 * belongs to the lock and lives as long; do not read or close it. Negative: no descriptor is
 * available. Threads: owner. */
DLOCK_API int dlock_lost_fd(dlock_lock *lock);

/* The number of the grant: larger than that of every earlier holder of the name. Shared holders
 * that hold together are in no order. The number stays until the release, even when the lease has
 * ended: from then on the resource must refuse it. 0 when not held. Threads: owner. */
DLOCK_API uint64_t dlock_fence(const dlock_lock *lock);

/* The token of the last acquire: host:pid[:owner]:random digits; "" before the first. Valid until
 * the next acquire. Threads: owner. */
DLOCK_API const char *dlock_token(const dlock_lock *lock);

/* After dlock_timings_init(). Threads: owner. */
DLOCK_API void dlock_get_timings(const dlock_lock *lock, dlock_timings *timings);

/* Why the last call did not return DLOCK_OK, for people; "" if it did. Never contains a password.
 * Valid until the next call. NULL: dlock_error(). Threads: owner. */
DLOCK_API const char *dlock_last_error(const dlock_lock *lock);

/* -- asynchronous: the same calls for programs with an event loop
 *
 *     struct pollfd source = {.fd = dlock_client_fd(client), .events = POLLIN};
 *     dlock_acquire_start(lock, 5000, done, job);       // returns at once
 *     while (there_is_work) {
 *         poll(&source, 1, -1);
 *         dlock_client_dispatch(client);                // calls done(job, lock, DLOCK_OK)
 *     }
 *
 * A call that was started ends by done(), which is called exactly once, by dlock_client_dispatch().
 * The function may do everything with the lock: start the next call, free the lock, and even call
 * blocking functions, but the event loop waits meanwhile. Requests that it starts are sent when
 * it has returned. Handlers and the access log run in the threads that start and dispatch.
 * See client/README.md. */

typedef void (*dlock_done_fn)(void *arg, dlock_lock *lock, dlock_status status);

/* Like the functions without _start. DLOCK_OK: started; the status for done() is the result of the
 * call. Else done() is never called: DLOCK_INVALID (also while a call of this lock is under way),
 * DLOCK_NO_MEMORY. Until done(), the lock is the client's: only dlock_cancel(), dlock_get_state(),
 * dlock_remaining_ms() and dlock_lock_free() may be called. dlock_cancel() ends an acquire.
 * Threads: owner. */
DLOCK_API dlock_status dlock_acquire_start(dlock_lock *lock, int64_t wait_ms, dlock_done_fn done,
                                           void *arg);
DLOCK_API dlock_status dlock_acquire_for_start(dlock_lock *lock, int64_t wait_ms, uint32_t lease_ms,
                                               dlock_done_fn done, void *arg);
DLOCK_API dlock_status dlock_extend_start(dlock_lock *lock, uint32_t lease_ms, dlock_done_fn done,
                                          void *arg);
DLOCK_API dlock_status dlock_release_start(dlock_lock *lock, dlock_done_fn done, void *arg);
/* The words are copied; reply must live until done(). */
DLOCK_API dlock_status dlock_guarded_start(dlock_lock *lock, size_t argc, const char *const *argv,
                                           const size_t *argvlen, dlock_reply *reply,
                                           dlock_done_fn done, void *arg);

/* A descriptor for poll(2), select(2), epoll(7) and event loops: readable as long as there is
 * something to dispatch. The descriptor belongs to the client and lives as long; do not read or
 * close it. Negative: no descriptor is available. Threads: any. */
DLOCK_API int dlock_client_fd(dlock_client *client);

/* Continues all calls that can continue, calls done() for those that have ended, and returns how
 * many have ended. Never waits. While a dispatch of the client goes on, another one, by another
 * thread or within done(), does nothing and returns 0. With no_threads, dispatches also renew
 * locks, withdraw requests in doubt and tell of losses: dispatch whenever the descriptor is
 * readable, and always in time for the next renewal (a program that does not dispatch loses its
 * locks when their leases end, and learns of it by the next dispatch). Threads: any. */
DLOCK_API size_t dlock_client_dispatch(dlock_client *client);

/* -- without a handle: for tools and operators
 *
 * Each returns by timeout_ms, or an I/O timeout later at the very worst; those without timeout_ms
 * return by connect_timeout_ms plus io_timeout_ms. why: NULL, or room for the cause of a failure,
 * for people; "" when there is none. With several independent servers, reading succeeds if a
 * majority replies; then why has a line for each of the others: the server (as in
 * dlock_inspection), a colon, a blank, the cause. DLOCK_INVALID: also with a store of the program's
 * own, which knows only dlock_release_token() and dlock_extend_token(); dlock_list() and
 * dlock_server_info(): also without the module. */

/* Release or extend a lock by its token (see dlock_token()), whichever process holds it.
 * DLOCK_NOT_HELD: the token does not hold the lock, and nothing has changed. Threads: any. */
DLOCK_API dlock_status dlock_release_token(dlock_client *client, const char *name,
                                           const char *token, char *why, size_t why_size);
DLOCK_API dlock_status dlock_extend_token(dlock_client *client, const char *name, const char *token,
                                          uint32_t lease_ms, char *why, size_t why_size);

/* A holder of a lock. */
typedef struct dlock_inspection {
    size_t struct_size;
    const char *server; /* host:port or the path of a socket */
    const char *name;   /* without the prefix. All three: until the function returns */
    size_t name_length;
    const char *token;
    size_t token_length;
    uint64_t fence;   /* 0: of a plain string */
    int64_t ttl_ms;   /* left; negative: the lock does not end by itself */
    int64_t lease_ms; /* asked for last */
    int64_t since_ms; /* when the lock was granted: unix time */
    int64_t waiters;  /* clients in line */
    int64_t session;  /* the id of the connection that the lock ends with, or 0 */
    bool is_string;   /* somebody's SET NX PX */
    dlock_mode mode;
    int64_t holders; /* of the lock, this one included */
} dlock_inspection;

/* False: no more. */
typedef bool (*dlock_list_fn)(void *arg, const dlock_inspection *lock);

/* Tells of each holder of the lock, in no order; with several independent servers, of the holders
 * at each server. DLOCK_NOT_HELD: the lock is free. Threads: any. */
DLOCK_API dlock_status dlock_inspect(dlock_client *client, const char *name, int64_t timeout_ms,
                                     dlock_list_fn tell, void *arg, char *why, size_t why_size);

/* Tells of every lock whose name (without the prefix) matches the pattern, in the syntax of KEYS of
 * Redis; NULL: all. Of a shared lock, tells of the holder with the smallest fence: the one that has
 * held longest. On every server, in no order. A lock that is taken or released meanwhile may be
 * told of or not, and a lock may be told of twice. Plain strings are not found. Threads: any. */
DLOCK_API dlock_status dlock_list(dlock_client *client, const char *pattern, int64_t timeout_ms,
                                  dlock_list_fn tell, void *arg, char *why, size_t why_size);

typedef struct dlock_waiting {
    size_t struct_size;
    const char *server; /* as of dlock_inspection */
    const char *token;
    size_t token_length;
    int64_t waited_ms; /* on the present connection */
    int64_t left_ms;   /* until the wait ends */
    int64_t client;    /* the id of the connection */
    dlock_mode mode;
} dlock_waiting;

/* False: no more. */
typedef bool (*dlock_waiting_fn)(void *arg, const dlock_waiting *waiting);

/* Tells of the clients in the queue of the lock, the first ones of each server, up to max (1 to
 * 10000). DLOCK_OK: also if nobody waits. Threads: any. */
DLOCK_API dlock_status dlock_list_waiters(dlock_client *client, const char *name, uint32_t max,
                                          int64_t timeout_ms, dlock_waiting_fn tell, void *arg,
                                          char *why, size_t why_size);

/* Calls changed with the present holder of the name, and again whenever the holder changes; NULL:
 * the lock is free. Of a shared lock, the holder with the smallest fence; another number of holders
 * is a change too, an extension is none. Several changes in a row may be told as one, but the last
 * one is always told, also after lost connections and failovers. Where the server does not permit
 * DLOCK.SESSION, the name is read once a second instead. name and holder are valid until changed
 * returns, or frees the watcher.
 *
 * changed is called by the thread that calls on_event, maybe before dlock_watch() returns, but not
 * before *out is set. It must not wait for locks of this client.
 * DLOCK_INVALID: with several independent servers, with DLOCK_MODULE_NONE, or with a store of the
 * program's own; dlock_error() says why. Threads: any. */
typedef struct dlock_watcher dlock_watcher;
typedef void (*dlock_watch_fn)(void *arg, const char *name, const dlock_inspection *holder);
DLOCK_API dlock_status dlock_watch(dlock_client *client, const char *name, dlock_watch_fn changed,
                                   void *arg, dlock_watcher **out);

/* Ends the watch: afterwards changed is not called any more. Waits while changed runs, unless
 * changed itself makes this call. NULL is fine. Threads: any. */
DLOCK_API void dlock_watcher_free(dlock_watcher *watcher);

/* Tells, of every server, each field of INFO dlock: see module/README.md. Threads: any. */
typedef void (*dlock_info_fn)(void *arg, const char *server, const char *field, const char *value);
DLOCK_API dlock_status dlock_server_info(dlock_client *client, int64_t timeout_ms,
                                         dlock_info_fn tell, void *arg, char *why, size_t why_size);

/* -- scopes, which release the lock however the body ends
 *
 * Both forms are re-entrant for a thread and a name: inside the body, the same thread gets the lock
 * of the same client again, at once and without a request. Inside a body with several names, it
 * gets all of these names again, or any of them. Some of them together with other names are
 * DLOCK_INVALID: the thread could wait for itself, or for a thread that waits for it. A nested body
 * shares the acquisition of the outer one. If that was lost, the nested body gets DLOCK_LOST. A
 * nested body may ask for a longer lease (the lease is extended, with a request), and for
 * DLOCK_SHARED where the outer one is exclusive. To ask for more than the outer body has
 * (DLOCK_EXCLUSIVE inside DLOCK_SHARED, a session, more replicas) is DLOCK_INVALID, too. A body
 * ends in the thread in which it began. */

/* Takes the lock, runs body, and releases the lock when body returns, unless body has done so. Body
 * runs in any case: got is the result of dlock_acquire(). If dlock_lock_new() failed, lock is NULL.
 * Body passes its own results through arg. The result: DLOCK_OK: the lock was held from before body
 * until after it. DLOCK_LOST: body had the lock, and lost it before it returned. Another status:
 * got, or, if got was DLOCK_OK, the failure of the release, which goes on in the background.
 * Threads: any. */
typedef void (*dlock_body)(dlock_lock *lock, dlock_status got, void *arg);
DLOCK_API dlock_status dlock_scope_run(dlock_client *client, const char *name, int64_t wait_ms,
                                       const dlock_lock_options *options, dlock_body body,
                                       void *arg);
/* With several names: see dlock_lock_new_all(). */
DLOCK_API dlock_status dlock_scope_run_all(dlock_client *client, const char *const *names,
                                           size_t count, int64_t wait_ms,
                                           const dlock_lock_options *options, dlock_body body,
                                           void *arg);

/* The same for a block, with GCC and Clang:
 *
 *     {
 *         DLOCK_SCOPED(held, client, "nightly-report", 5000, NULL);
 *         if (held.got != DLOCK_OK) return;        // nothing to give back
 *         write_report(dlock_fence(held.lock));
 *         if (dlock_scope_end(&held) != DLOCK_OK) discard_report(); // lost, or not known
 *     }                                            // released, on every way out
 *
 * DLOCK_SCOPED_ALL(held, client, names, count, 5000, NULL) takes several names. held.lock is NULL
 * if there is no handle, and after the end. Inside, dlock_get_state(held.lock)
 * says whether the lock is lost. */
typedef struct dlock_scope {
    dlock_lock *lock;
    dlock_status got; /* of the acquire; after the end, as the result of dlock_scope_run() */
} dlock_scope;

/* Threads: any; the end in the thread of the begin. dlock_scope_end() returns scope->got, and does
 * nothing else the second time. */
DLOCK_API dlock_scope dlock_scope_begin(dlock_client *client, const char *name, int64_t wait_ms,
                                        const dlock_lock_options *options);
DLOCK_API dlock_scope dlock_scope_begin_all(dlock_client *client, const char *const *names,
                                            size_t count, int64_t wait_ms,
                                            const dlock_lock_options *options);
DLOCK_API dlock_status dlock_scope_end(dlock_scope *scope);

#if defined(__GNUC__)
#define DLOCK_SCOPED(variable, client, name, wait_ms, options)                                     \
    dlock_scope variable __attribute__((cleanup(dlock_scope_end))) =                               \
        dlock_scope_begin(client, name, wait_ms, options)
#define DLOCK_SCOPED_ALL(variable, client, names, count, wait_ms, options)                         \
    dlock_scope variable __attribute__((cleanup(dlock_scope_end))) =                               \
        dlock_scope_begin_all(client, names, count, wait_ms, options)
#endif

#ifdef __cplusplus
}
#endif

#endif
