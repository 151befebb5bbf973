/* SPDX-License-Identifier: BSD-3-Clause */
/* connection.h - one connection to a server: log in, pipeline requests, give each its replies.
 *
 * Requests are answered in the order in which they were sent. A request can be abandoned: its
 * replies are skipped when they come. A reply that belongs to no request ends the connection, so
 * that it is never read as another's. All functions: locked (loop.h). Callbacks come from the loop,
 * never from within a function of this header, connection_close() included. */
#pragma once
#include "net/diagnostics.h"
#include "net/loop.h"
#include "net/resolve.h"
#include "net/resp.h"
#include "net/tls.h"
#include "net/url.h"

enum { CAUSE_SIZE = 256 };

/* Settings that all servers of a client share. */
typedef struct server_options {
    loop *loop;
    uint32_t connect_timeout_ms, io_timeout_ms;
    tls_context *tls;                     /* for rediss://, or NULL; must outlive the server */
    atomic_uint_least64_t *command_count; /* commands sent, of the whole client */
    const char *name;                     /* for CLIENT LIST; NULL: none. Must outlive the server */
    diagnostics *diagnostics;             /* NULL: nobody wants to know. Must outlive the server */
} server_options;

/* How to reach a server. Borrowed: outlives its connections. */
typedef struct endpoint {
    url url;
    server_options options;
    addresses known; /* of a literal address or a path; count 0: look the name up */
    lookup *last_lookup;
    /* Never connected, connected, lost, or not reachable either: for the diagnostics, and for a
     * request that was not sent because its connection was just lost (routed.c). */
    enum { ENDPOINT_NEW, ENDPOINT_UP, ENDPOINT_LOST, ENDPOINT_DOWN } state;
    uint32_t ready_count; /* of connections that became ready, ever */
} endpoint;

/* A connection that was ready has ended, or was found closed: for the diagnostics. */
void endpoint_note_loss(endpoint *endpoint, const char *cause);

typedef struct connection connection;
typedef struct request request;

/* One or several commands that are sent together. The memory belongs to the sender, and must stay
 * until on_done() is called or the request is abandoned. {0} but for the callbacks. */
struct request {
    /* One reply; valid only during the call. NULL: the replies are not looked at. */
    void (*on_reply)(request *request, int index, const reply *reply);
    /* No reply follows. DLOCK_OK: all replies have come. DLOCK_IN_DOUBT: the request was sent, and
     * the connection ended before all replies had come. DLOCK_PROTOCOL with sent_us: likewise,
     * because of a reply that makes no sense. DLOCK_UNREACHABLE (may pass), DLOCK_REFUSED,
     * DLOCK_PROTOCOL, DLOCK_INVALID, DLOCK_NO_MEMORY: nothing was sent. The cause does not name the
     * server. The request may be sent again from here. NULL: nobody wants to know. */
    void (*on_done)(request *request, dlock_status status, const char *cause);

    /* The bytes are about to be given to the kernel; sent_us is set. The function must not send or
     * close anything. NULL: nobody wants to know. */
    void (*on_sent)(request *request);
    size_t reply_bytes_max; /* a longer reply ends the connection; 0: REPLY_BYTES */
    /* Private to connection.c. */
    int64_t sent_us;  /* when the kernel got the bytes; 0: not yet. Senders may read this */
    connection *conn; /* NULL: the request is not under way */
    uint64_t sequence;
};

/* How the owner of a connection is told. Each function may be NULL. */
typedef struct connection_owner {
    /* A reply has come, to the login for instance. That a connection was made is no sign of life,
     * since the kernel accepts connections for a server that hangs. */
    void (*on_answered)(void *arg, connection *conn);
    /* The oldest request has had no reply for an I/O timeout. Called once for a connection. (A
     * connection on which the login or PING has no reply in that time ends.) */
    void (*on_stalled)(void *arg, connection *conn);
    /* The connection has ended, and the owner must forget it: its requests are told next, then its
     * memory is freed. */
    void (*on_broken)(void *arg, connection *conn);
    void *arg;
    /* NULL, or where the owner has the connection: becomes NULL there when the connection ends. */
    connection **place;
    /* Send no request before the server has given a reply on this connection: to a PING, if the URL
     * asks for no login. */
    bool needs_proof;
    /* Replies may take as long as they like: nobody waits for them when the client ends. */
    bool is_parked;
} connection_owner;

/* Begins to connect and to log in. NULL: no memory. */
connection *connection_open(endpoint *endpoint, const connection_owner *owner);
/* Abandons all requests: no callback comes after that. Bytes that the kernel has are still sent.
 * NULL is fine. */
void connection_close(connection *conn);
/* Ends the connection. The owner is told later, from the loop, and then the requests. */
void connection_fail(connection *conn, dlock_status failure, const char *cause);

/* Sends copies of these commands, behind all commands before. request NULL: nobody wants the
 * replies. False: no memory, and on_done() is not called. */
bool connection_send(connection *conn, const command commands[], int count, request *request);

/* The sender does not wait for the request any more: no callback comes. True: some of its bytes
 * were sent, or may be. False: none was, and none will be. */
bool connection_abandon(request *request);

bool connection_is_ready(const connection *conn);
bool connection_is_idle(const connection *conn); /* ready, and owes no reply */
/* Before a request on a connection that was idle for a while: is the server still there, and has it
 * sent nothing? */
bool connection_is_alive(connection *conn);
/* The event that a connection waits for until it is ready, for people. */
const char *connection_overdue(const connection *conn);

enum { REPLY_BYTES = 64 * 1024, REPLY_BYTES_MAX = 16 * 1024 * 1024 };
