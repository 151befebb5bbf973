/* SPDX-License-Identifier: BSD-3-Clause */
/* server.c - see server.h.
 *
 *   send      on the command connection, which is opened when it is needed
 *   stalled   the command connection becomes the draining one, which is closed once it owes
 *             nothing; an older draining one is given up. The next command connection sends
 *             nothing but a PING until the server answers
 *   broken    the next send opens a new connection
 *
 * Invariant: at most one command and one draining connection. */
#include "net/server.h"

#include "net/connection_state.h"
#include <sys/un.h>

enum { UNSENT_MAX = 256 * 1024 };

/* -- life */

static addresses path_address(const url *url) {
    addresses only = {.count = 1, .sizes = {sizeof(struct sockaddr_un)}};
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    memcpy(path.sun_path, url->host, strlen(url->host));
    memcpy(&only.each[0], &path, sizeof(path));
    return only;
}

server *server_new(const url *url, const server_options *options) {
    server *server = calloc(1, sizeof(*server));
    if (server == NULL) return NULL;
    server->shares = 1;
    server->loop = options->loop;
    url_describe(url, server->name, sizeof(server->name));
    endpoint *endpoint = &server->endpoint;
    endpoint->url = *url;
    endpoint->options = *options;
    if (url->is_unix)
        endpoint->known = path_address(url);
    else
        resolve_literal(&endpoint->known, url->host, url->port);
    return server;
}

server *server_share(server *server) {
    server->shares++;
    return server;
}

void server_free(server *server) {
    if (server == NULL || --server->shares > 0) return;
    if (server->presence != NULL) server->free_presence(server);
    if (server->acknowledgements != NULL) server->free_acknowledgements(server);
    connection_close(server->command);
    connection_close(server->draining);
    lookup_leave(server->endpoint.last_lookup);
    free(server);
}

/* -- how the connections fare */

static void on_answered(void *arg, connection *conn) {
    server *server = arg;
    breaker_note(&server->breaker, true, 0);
    server->is_left_alone = false;
    if (conn == server->draining && connection_is_idle(conn)) {
        connection_close(conn);
        server->draining = NULL;
    }
}

/* Its requests are told later, maybe after the server is freed: so it has no owner any more. */
static void give_up_draining(const server *server) {
    if (server->draining == NULL) return;
    server->draining->owner = (connection_owner){0};
    connection_fail(server->draining, DLOCK_UNREACHABLE, "no reply in time");
}

/* A connection that only owes the reply to its login or PING is of no use: no request was sent. */
static void on_stalled(void *arg, connection *conn) {
    server *server = arg;
    if (!connection_is_ready(conn)) {
        connection_fail(conn, DLOCK_UNREACHABLE, connection_overdue(conn));
        return;
    }
    breaker_note(&server->breaker, false, loop_now_us(server->loop));
    if (conn != server->command) return;
    give_up_draining(server);
    server->draining = conn;
    server->command = NULL;
}

static void on_broken(void *arg, connection *conn) {
    server *server = arg;
    breaker_note(&server->breaker, false, loop_now_us(server->loop));
    if (conn == server->command) server->command = NULL;
    if (conn == server->draining) server->draining = NULL;
}

/* -- short commands */

/* A server that hangs gets a single PING, instead of the requests of all callers, whose fate nobody
 * would know. */
static void open_command(server *server) {
    connection_owner owner = {.on_answered = on_answered,
                              .on_stalled = on_stalled,
                              .on_broken = on_broken,
                              .arg = server,
                              .needs_proof = server->draining != NULL};
    server->command = connection_open(&server->endpoint, &owner);
}

/* Nobody waits for the reply, and a server that hangs has many such commands already. All of them
 * wait in memory until the server answers. */
static bool is_dropped(const connection *conn, const request *request) {
    return request == NULL && !connection_is_ready(conn) && conn->pipeline.out.size > UNSENT_MAX;
}

bool server_send(server *server, const command commands[], int count, request *request) {
    if (server->command != NULL && !connection_is_alive(server->command)) {
        endpoint_note_loss(&server->endpoint, "the server closed the connection");
        connection_close(server->command);
        server->command = NULL;
    }
    if (server->command == NULL) open_command(server);
    if (server->command == NULL) return false;
    return is_dropped(server->command, request) ||
           connection_send(server->command, commands, count, request);
}

void server_send_behind(server *server, const command *command) {
    if (server->draining != NULL) connection_send(server->draining, command, 1, NULL);
}

bool server_is_available(server *server) {
    bool is_available = breaker_allows(&server->breaker, loop_now_us(server->loop));
    if (!is_available && !server->is_left_alone)
        diagnose(server->endpoint.options.diagnostics, DLOCK_LOG_WARNING, server->name,
                 "left alone for a moment, after failures in a row", "");
    if (!is_available) server->is_left_alone = true;
    return is_available;
}
