/* SPDX-License-Identifier: BSD-3-Clause */
/* server.h - one server: its command connection, connections of their own for those who wait for
 * replicas, and whether it is worth a try.
 *
 *   command connection   all short commands, in order. If it stalls, it is drained (replies to what
 *                        was sent on it still count) and a new one takes over
 *   own connections      for Redis's WAIT, which blocks. A few idle ones are kept for a second
 *   session              see deployment/presence.h
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
    /* Private to server.c. */
    size_t shares;
    loop *loop;
    connection *command, *draining; /* NULL: none */
    list kept;                      /* own_connection */
    size_t kept_count;
    breaker breaker;
    bool is_left_alone; /* because of the breaker, since the last reply */
    /* Of deployment/presence.c: the session at this server, and how it ends. NULL: none. */
    struct presence *presence;
    void (*free_presence)(struct server *server);
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

/* A connection of one's own, idle or being made; requests on it go through connection_send(). */
typedef struct own_connection {
    server *server;
    connection *conn; /* NULL: it has broken */
    /* Private to server.c. */
    list_node node; /* in the list of kept ones, or in no list */
    bool is_kept;
    loop_timer kept_timer;
} own_connection;

/* NULL: no memory. */
own_connection *server_open_own(server *server);
/* Gives it back: kept for the next one if it is worth it and owes nothing, else closed. NULL is
 * fine. */
void own_connection_free(own_connection *own);

/* False: the circuit is open; skip this server if you can. True for one caller when the pause is
 * over. */
bool server_is_available(server *server);
