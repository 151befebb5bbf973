/* SPDX-License-Identifier: BSD-3-Clause */
/* deployment.h - where locks are kept, and how one attempt to take, extend or release one is made.
 *
 *   routed    one server decides: single, Sentinel's master, or the node of a cluster (router.h)
 *   slots     a cluster, and names in several slots: a part for each slot, which is routed
 *   redlock   several independent servers; a majority decides
 *   custom    a program's own store (dlock_spi.h)
 *
 * To add a deployment: a file with a deployment_table. All functions: locked (loop.h). */
#pragma once
#include "base/token.h"
#include "deployment/topology.h"
#include "net/server.h"
#include "protocol/lock_commands.h"

typedef struct deployment deployment;
typedef struct attempt attempt;

/* The terms of a lock, the same for all of its attempts. */
typedef struct attempt_terms {
    /* Ties the lock to the session of its server (presence.h). NULL: the lease alone counts. */
    struct tie *tie;
    dlock_mode mode; /* every acquire of the lock repeats these two, a renewal too */
    uint32_t max_holders;
    uint32_t min_replicas;       /* must acknowledge; 0: none */
    uint32_t replica_timeout_ms; /* may come on top of limit_us; in the background at most an I/O
                                  * timeout, as others wait for the same round */
} attempt_terms;

/* A command to be run under the lock, and nothing else. Sent once: after a doubt, not again. */
typedef struct attempt_guarded {
    const guarded_words *words;
    dlock_reply *reply; /* set with DLOCK_OK; or NULL */
} attempt_guarded;

/* By attempt_prepare(). */
typedef struct attempt_prepared {
    const lock_protocol *protocol;
    void *run; /* the deployment's */
} attempt_prepared;

/* One attempt: what is wanted, and the result. Memory of the caller's, zeroed; not moved while the
 * attempt is under way. */
struct attempt {
    attempt_terms terms;
    const attempt_guarded *guarded; /* NULL: the operation */
    /* Borrowed until the attempt is done. With several names the first one: the others are behind
     * it, as a list of text.h. The first name decides which server is asked. */
    const char *name;
    /* The token of a granted lock is in here when the acquire is done. A failed acquire may have
     * changed the token for the next attempt. */
    char *token;               /* room for DLOCK_TOKEN_SIZE bytes, borrowed like the name */
    dlock_operation operation; /* 0 with a guarded command */
    uint32_t lease_ms;
    int64_t wait_until_us; /* acquire: may be parked in the server until then; 0: not */
    int64_t limit_us;      /* done by then; parked ones and connecting included */
    uint64_t fence;        /* in: of an extension, of the held lock. Out: of a granted acquire */
    void (*on_done)(attempt *attempt); /* never from within deployment_start() */
    /* NULL, or, maybe several times: a release is on its way, before all later requests of this
     * client to that server. */
    void (*on_sent)(attempt *attempt);
    void *arg;
    /* Acquire: a run of so many fences is wanted; 0: one. Out: so many were granted, the first one
     * is fence. */
    uint16_t fences;
    uint8_t name_count; /* 0, 1: one name */
    /* The one record of what servers may hold for the token: whoever gives the token up has to
     * withdraw it, unless TOKEN_UNHELD. The deployment sets TOKEN_IN_DOUBT; after that the next
     * acquire repeats the token. The user sets TOKEN_HELD, by attempt_note_grant(); the deployment
     * does where an acquire fails after a reply that may have been a grant. */
    token_fate fate : 2;
    /* No call waits for this attempt.
     *   extend    a renewal: a server that has forgotten the lock is asked to grant it again
     *   acquire   ties a lock that the token holds already to a session again. No replica has to
     *             acknowledge, and no RELEASE follows, neither at limit_us nor when abandoned
     *   release   a withdrawal: ends when all servers have replied */
    bool is_background : 1;

    /* The result. */
    /* After a failure: another attempt may succeed. After a release in the background, even with
     * DLOCK_OK: a server has not answered. */
    bool is_transient : 1;
    /* Acquire: some of several servers granted the lock, and others had granted it to others. Maybe
     * nobody has got it: the result says little, and another attempt may be different at once. */
    bool is_split : 1; /* a bit, as a program may have many handles: memory_test.c */
    dlock_status status;
    int64_t asked_us;  /* the lease counts from here: before the request was sent */
    const char *cause; /* of anything but DLOCK_OK; names the server. Until attempt_free() */

    attempt_prepared prepared;
};

enum { SERVER_LIST_MAX = 1000 };

/* Which servers have locks (of a cluster: the masters). Memory of the caller's, {0}. */
typedef struct server_list {
    dlock_status status;
    char cause[CAUSE_SIZE]; /* of anything but DLOCK_OK */
    size_t count;
    server *servers[SERVER_LIST_MAX]; /* shares, the caller's to free */
} server_list;

typedef struct deployment_table {
    /* acquire: DLOCK_OK with fence and asked_us; DLOCK_BUSY: another holds the lock (even when
     * wait_until_us came); DLOCK_NO_REPLICAS: undone. extend: DLOCK_OK with asked_us; DLOCK_LOST.
     * release: DLOCK_OK; DLOCK_LOST: the token did not hold the lock. guarded: DLOCK_OK with the
     * reply; DLOCK_LOST; DLOCK_IN_DOUBT: the command may have been run, or still be; else not. */
    void (*start)(deployment *deployment, attempt *attempt);
    /* Nobody waits any more: on_done is not called. After an acquire that may have been sent, a
     * RELEASE follows on the same connection, and a withdrawal goes on if that fails. */
    void (*abandon)(deployment *deployment, attempt *attempt);
    /* May wait in the loop, until limit_us at most. NULL: there are no servers. */
    void (*list_servers)(deployment *deployment, int64_t limit_us, server_list *list);
    void (*free)(deployment *deployment);
    size_t run_size; /* memory for an attempt under way */
    /* NULL: as above. Else: the memory depends on the names or the terms. */
    size_t (*size_run)(const attempt *attempt);
    bool is_routed; /* one server decides, which may have replicas: a router (router.h) */
    /* NULL: commands can be run under a lock; else why not, for people. */
    const char *guarded_error;
} deployment_table;

/* Private to withdrawal.c. */
typedef struct withdrawals {
    list all;    /* withdrawal; those of the next list are not in this one */
    list failed; /* withdrawal, during the pause after a failure; the oldest failure is first */
    size_t count;
    waiter *waiter; /* of withdrawals_finish(): ready once the list is empty; NULL: no hurry */
    bool is_closed;
} withdrawals;

struct deployment {
    const deployment_table *table;
    const lock_protocol *protocol; /* of the module, unless set otherwise after construction */
    loop *loop;
    uint32_t io_timeout_ms, connect_timeout_ms;
    uint32_t session_ms; /* the timeout of sessions; 0: the servers have none */
    bool can_wait;       /* an acquire can wait in the server */
    bool can_share;      /* a lock can have shared holders */
    withdrawals withdrawals;
    size_t troubled;               /* acquires that pause after a failure: handlers/waiting.c */
    struct session_life *lives;    /* of sessions, in use or not (life.h) */
    atomic_uint_least64_t renewed; /* extensions in the background, and heartbeats for each lock */
};

/* For constructors; the rest is zero. The deployment can share. */
void deployment_init(deployment *deployment, const deployment_table *table,
                     const server_options *options);

/* Memory for attempts with this struct, once for many of them. False: no memory. */
bool attempt_prepare(attempt *attempt, const deployment *deployment);
void attempt_free(attempt *attempt); /* not under way */

/* The user of an acquire takes the grant. A doubt about an earlier acquire stays. */
static inline void attempt_note_grant(attempt *attempt) {
    if (attempt->fate == TOKEN_UNHELD) attempt->fate = TOKEN_HELD;
}

/* A RELEASE of the token is on its way: the next acquire gets another token. */
static inline void attempt_change_token(attempt *attempt) {
    token_vary(attempt->token);
    attempt->fate = TOKEN_UNHELD;
}

static inline bool attempt_has_several(const attempt *attempt) {
    return attempt->name_count > 1;
}

/* Sends the command of an operation, which may differ from that of the attempt, or the guarded
 * command; behind an ASKING if is_asking. words: the operation, and wait, fence and hash if there
 * are any; the rest is the attempt's. Several names are extended one by one, by a command for each
 * name, all sent together: an extension never takes a lock anew, and takes nothing away if only
 * some of the names are still held. conn NULL: the command connection of the server. request NULL:
 * nobody waits for replies. False: no memory. */
bool attempt_send(const attempt *attempt, const lock_words *words, bool is_asking, server *server,
                  connection *conn, request *request);

/* After a reply WRONGTYPE to the RELEASE of several names, which has released none of them: each
 * name is released alone. Nobody waits for the replies. Does nothing after another reply. */
void attempt_release_each(const attempt *attempt, const reply *reply, bool is_asking,
                          server *server);

/* At the end of a release: another RELEASE follows an ACQUIRE that may arrive late. Not sooner: if
 * served before the RELEASE of the attempt, this one would make the lock look lost. Does nothing at
 * the end of another operation. */
void attempt_release_behind(const attempt *attempt, bool is_asking, server *server);

/* Sets the result; does not call on_done. */
void attempt_set_result(attempt *attempt, dlock_status status, bool is_transient,
                        const char *cause);

/* The text of a cause with the name of the server in front, of which half of the room is left. */
void cause_write(char cause[CAUSE_SIZE], const server *server, const char *text);

/* Begins a withdrawal: a RELEASE that no call waits for. One follows an acquire that was given up
 * while its fate was unknown, and a release without a reply. The RELEASE is sent again until a
 * reply comes or the lease would have ended. The names and the token of the attempt are copied.
 * Without memory there is no withdrawal, nor if there are too many of them already and the lease
 * ends the lock. */
void withdrawals_add(deployment *deployment, const attempt *withdrawn, uint32_t lease_ms);
/* After such a reply to a RELEASE the token does not hold the lock at that server. */
static inline bool is_withdrawn(dlock_status status) {
    return status == DLOCK_OK || status == DLOCK_LOST || status == DLOCK_INVALID;
}
/* Tries all of them once more, now, and waits for the replies, for an I/O timeout at most. After
 * that none is added. */
void withdrawals_finish(deployment *deployment);

/* Each: NULL: no memory. master_new(): a single server, or the master that sentinels name. */
deployment *master_new(const topology *topology, const server_options *options);
deployment *cluster_new(const topology *topology, const server_options *options);
deployment *redlock_new(const topology *topology, const server_options *options);
/* The functions of the store may block, so threads of their own call them. Copies the table of the
 * store, which stays the caller's if the result is NULL. */
deployment *custom_new(const dlock_backend *store, const server_options *options);

static inline bool deployment_can_wait(const deployment *deployment) {
    return deployment->can_wait && deployment->protocol->has_module;
}

/* One server decides, and tells of changes (lease/name_watch.h). */
static inline bool deployment_can_watch(const deployment *deployment) {
    return deployment->table->is_routed && deployment->protocol->has_module;
}

/* Enough to connect, to send, and for a reply at once. */
static inline int64_t deployment_short_ms(const deployment *deployment) {
    return (int64_t)deployment->connect_timeout_ms + deployment->io_timeout_ms;
}

static inline void deployment_start(deployment *deployment, attempt *attempt) {
    deployment->table->start(deployment, attempt);
}

static inline void deployment_abandon(deployment *deployment, attempt *attempt) {
    deployment->table->abandon(deployment, attempt);
}
