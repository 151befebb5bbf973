/* SPDX-License-Identifier: BSD-3-Clause */
/* server.c - see server.h.
 *
 *   send      on the command connection, which is opened when it is needed
 *   stalled   the command connection becomes the draining one, which is closed once it owes
 *             nothing; an older draining one is given up. Those who are parked are told of the
 *             doubt
 *   broken    the next send opens a new connection
 *
 * Invariant: at most one command and one draining connection. Own connections: own_connection.c. */
#include "net/server_state.h"

#include "base/text.h"
#include <stdlib.h>
#include <sys/un.h>

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
    server->options = *options;
    own_connections_init(server);
    url_describe(url, server->name, sizeof(server->name));
    endpoint *endpoint = &server->endpoint;
    *endpoint = (struct endpoint){.url = *url,
                                  .tls = url->is_tls ? options->tls : NULL,
                                  .connect_timeout_ms = options->connect_timeout_ms,
                                  .io_timeout_ms = options->io_timeout_ms,
                                  .command_count = options->command_count};
    if (url->is_unix)
        endpoint->known = path_address(url);
    else if (!resolve_literal(&endpoint->known, url->host, url->port))
        endpoint->known.count = 0;
    return server;
}

server *server_share(server *server) {
    server->shares++;
    return server;
}

void server_free(server *server) {
    if (server == NULL || --server->shares > 0) return;
    own_connections_close(server);
    connection_close(server->command);
    connection_close(server->draining);
    lookup_leave(server->endpoint.last_lookup);
    free(server);
}

/* -- how the connections fare */

static void on_answered(void *arg, connection *conn) {
    server *server = arg;
    breaker_note(&server->breaker, true, 0);
    if (conn == server->draining && connection_is_idle(conn)) {
        connection_close(conn);
        server->draining = NULL;
    }
}

static void note_failure(server *server) {
    breaker_note(&server->breaker, false, loop_now_us(server->options.loop));
}

static void on_stalled(void *arg, connection *conn) {
    server *server = arg;
    note_failure(server);
    if (conn != server->command) return;
    if (server->draining != NULL)
        connection_fail(server->draining, DLOCK_UNREACHABLE, "no reply in time");
    server->draining = conn;
    server->command = NULL;
    own_connections_doubt(server);
}

static void on_broken(void *arg, connection *conn) {
    server *server = arg;
    note_failure(server);
    bool is_unreachable = conn == server->command && connection_heard_us(conn) == 0;
    if (conn == server->command) server->command = NULL;
    if (conn == server->draining) server->draining = NULL;
    if (is_unreachable) own_connections_doubt(server);
}

/* -- short commands */

bool server_send(server *server, const command *const commands[], int count, request *request) {
    if (server->command != NULL && !connection_is_alive(server->command)) {
        connection_close(server->command);
        server->command = NULL;
    }
    if (server->command == NULL)
        server->command = connection_open(server->options.loop, &server->endpoint,
                                          &(connection_owner){.on_answered = on_answered,
                                                              .on_stalled = on_stalled,
                                                              .on_broken = on_broken,
                                                              .arg = server});
    return server->command != NULL && connection_send(server->command, commands, count, request);
}

/* -- the rest */

bool server_is_available(server *server) {
    return breaker_allows(&server->breaker, loop_now_us(server->options.loop));
}

const url *server_url(const server *server) {
    return &server->endpoint.url;
}

const char *server_name(const server *server) {
    return server->name;
}
