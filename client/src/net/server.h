/* SPDX-License-Identifier: BSD-3-Clause */
/* server.h - one server: its command connection, and whether it is worth a try.
 *
 *   command connection   all short commands, in order. If replies are overdue, it is drained and
 *                        a new one takes over: replies to what was sent on it still count, and a
 *                        RELEASE can follow an ACQUIRE that may arrive late
 *   other connections    of deployment/presence.h and deployment/acknowledgement.h, one each
 *   circuit breaker      after failures in a row the server counts as unavailable for a moment;
 *                        then one caller may try it
 *
 * All functions: locked (loop.h). */
#pragma once
#include "net/breaker.h"
#include "net/connection.h"

enum { DRAINING_MAX = 8 };

typedef struct server {
    endpoint endpoint;
    char name[CAUSE_SIZE]; /* host:port or a path, for messages */
    /* Private to server.c. */
    size_t shares;
    loop *loop;
    connection *command; /* NULL: none */
    connection *draining[DRAINING_MAX];
    size_t draining_count;
    uint64_t settled_at; /* drained connections are closed from this request of command on */
    breaker breaker;
    bool is_left_alone; /* because of the breaker, since the last reply */
    /* Of deployment/presence.c and deployment/acknowledgement.c: what has another connection to
     * this server, and how it ends with the server. NULL: none. */
    struct presence *presence;
    void (*free_presence)(struct server *server);
    struct acknowledgements *acknowledgements;
    void (*free_acknowledgements)(struct server *server);
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

/* Short commands, on the command connection. False: no memory, and nothing is told. Commands
 * without a request may be dropped while the server does not answer. */
bool server_send(server *server, const command commands[], int count, request *request);
/* The command on each connection that is drained: a request that arrives late is followed by the
 * command. Nobody wants the replies. */
void server_send_behind(server *server, const command *command);

/* False: the circuit is open; skip this server if you can. True for one caller when the pause is
 * over. */
bool server_is_available(server *server);
