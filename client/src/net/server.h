/* SPDX-License-Identifier: BSD-3-Clause */
/* server.h - one server: its command connection, the connections of those who wait in it, and
 * whether it is worth a try.
 *
 *   command connection   all short commands, in order. If it stalls, it is drained (replies to what
 *                        was sent on it still count) and a new one takes over
 *   own connections      for what blocks inside the server: a parked ACQUIRE, WAIT for replicas, a
 *                        session. A few idle ones are kept for a second
 *   probe                while somebody is parked, the server is asked for a sign of life every
 *                        PROBE_MS; if there is none, those who are parked are told
 *   circuit breaker      after failures in a row the server counts as unavailable for a moment;
 *                        then one caller may try it
 *
 * All functions: locked (loop.h). */
#pragma once
#include "net/breaker.h"
#include "net/connection.h"

typedef struct server {
    endpoint endpoint;
    char name[CAUSE_SIZE]; /* host:port or a path, for messages */
    /* NULL, or deferred whenever a command connection has ended, or another one takes over. */
    loop_task *reset_task;
    /* Private to server.c. */
    size_t shares;
    loop *loop;
    connection *command, *draining; /* NULL: none */
    list parked, kept;              /* own_connection */
    size_t kept_count;
    breaker breaker;
    loop_timer probe_timer;
} server;

/* NULL: no memory. */
server *server_new(const url *url, const server_options *options);
/* One for each URL; all are NULL before. False: no memory, and the rest stays NULL. */
static inline bool servers_new(server *servers[], const url urls[], size_t count,
                               const server_options *options) {
    bool is_made = true;
    for (size_t i = 0; i < count && is_made; i++)
        is_made = (servers[i] = server_new(&urls[i], options)) != NULL;
    return is_made;
}

/* One more who uses it: each gives it back by server_free(). */
server *server_share(server *server);
/* The last one closes its connections; requests under way are abandoned. */
void server_free(server *server);

/* Short commands, on the command connection. False: no memory, and nothing is told. */
bool server_send(server *server, const command commands[], int count, request *request);
/* The command on every connection that still owes replies to abandoned requests: a request that
 * arrives late is followed by the command. Nobody wants the replies. */
void server_send_behind(server *server, const command *command);

/* A connection of one's own, idle or being made; requests on it go through connection_send(). The
 * callbacks come from the loop, with arg; each may be NULL. */
typedef struct own_connection {
    server *server;
    connection *conn; /* NULL: it has broken */
    /* While parked, whenever the server gives no sign of life: it hangs, or cannot be reached. The
     * request stays under way: a server that comes back has it in its queue still. */
    void (*on_doubt)(void *arg);
    /* Once, when it breaks while no request is under way on it (a session). */
    void (*on_broken)(void *arg);
    /* A message of a subscription. Where nobody wants any, one ends the connection. */
    void (*on_message)(void *arg, const reply *message);
    void *arg;
    /* Private to server.c. */
    list_node node; /* in parked or kept of its server, or in no list */
    bool is_parked, is_kept;
    loop_timer kept_timer;
    loop_task doubt_task;
} own_connection;

/* is_parked: the server is probed while it is in use. NULL: no memory. */
own_connection *server_open_own(server *server, bool is_parked);
/* A connection that did not exist before, and is not parked. A request is sent once the server has
 * given a reply on it: the kernel accepts connections for a server that is dying, and drops them.
 * NULL: no memory. */
own_connection *server_open_new_own(server *server);
/* Gives it back: kept for the next one if it is worth it and owes nothing, else closed, with
 * shutdown(2) since a forked child may have a copy. */
void own_connection_free(own_connection *own);
/* Closes it for certain: the server is to notice. NULL is fine. */
void own_connection_close(own_connection *own);
/* Its request was answered, and it is kept for a session: a server that is slow to give a sign of
 * life does not end it any more. */
void own_connection_unpark(own_connection *own);

/* False: the circuit is open; skip this server if you can. True for one caller when the pause is
 * over. */
bool server_is_available(server *server);
