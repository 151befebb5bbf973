/* SPDX-License-Identifier: BSD-3-Clause */
/* server.c - see server.h.
 *
 *   send      on the command connection, which is opened when it is needed
 *   stalled   the command connection is drained: it gets no new requests, but stays open for its
 *             late replies. The next send opens another command connection, which sends nothing but
 *             a PING until the server replies. A RELEASE on the new connection may be served before
 *             a late ACQUIRE on the drained one, so another RELEASE is sent there too, behind that
 *             ACQUIRE (server_send_behind()). The drained connection is closed once it owes nothing
 *             and the requests sent on the new one by then have replies
 *   broken    the next send opens a new connection
 *
 * A server that hangs leaves one connection to drain: the next one carries no requests before its
 * PING has a reply. More of them come from a network that loses what is sent on one connection but
 * not on the next, such as a firewall that has forgotten a connection. Each is kept, because an
 * ACQUIRE in doubt may still arrive on it. Beyond DRAINING_MAX the oldest is closed: if an ACQUIRE
 * arrives on it after all, only the end of the lease frees that lock. */
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
    while (server->draining_count > 0)
        connection_close(server->draining[--server->draining_count]);
    lookup_leave(server->endpoint.last_lookup);
    free(server);
}

/* -- how the connections fare */

/* False: the connection is not drained. */
static bool forget_draining(server *server, const connection *conn) {
    size_t i = 0;
    while (i < server->draining_count && server->draining[i] != conn)
        i++;
    if (i == server->draining_count) return false;
    for (server->draining_count--; i < server->draining_count; i++)
        server->draining[i] = server->draining[i + 1];
    return true;
}

static void close_drained(server *server) {
    for (size_t i = server->draining_count; i-- > 0;) {
        connection *conn = server->draining[i];
        if (connection_is_idle(conn) && forget_draining(server, conn)) connection_close(conn);
    }
}

static void on_answered(void *arg, connection *conn) {
    server *server = arg;
    const connection *command = server->command;
    bool is_sent = command != NULL && connection_is_ready(command);
    breaker_note(&server->breaker, true, 0);
    server->is_left_alone = false;
    if (is_sent && conn != command)
        server->settled_at = command->pipeline.first_sequence + command->pipeline.marked;
    if (!is_sent || command->pipeline.first_sequence >= server->settled_at) close_drained(server);
}

/* Its requests are told later, maybe after the server is freed: so it has no owner any more. */
static void give_up_oldest(server *server) {
    connection *oldest = server->draining[0];
    forget_draining(server, oldest);
    oldest->owner = (connection_owner){0};
    connection_fail(oldest, DLOCK_UNREACHABLE, "no reply in time");
}

static void on_stalled(void *arg, connection *conn) {
    server *server = arg;
    breaker_note(&server->breaker, false, loop_now_us(server->loop));
    if (conn != server->command) return;
    if (server->draining_count == DRAINING_MAX) give_up_oldest(server);
    server->draining[server->draining_count++] = conn;
    server->command = NULL;
    server->settled_at = 0;
}

static void on_broken(void *arg, connection *conn) {
    server *server = arg;
    breaker_note(&server->breaker, false, loop_now_us(server->loop));
    if (server->command == NULL) server->settled_at = 0;
    forget_draining(server, conn);
}

/* -- short commands */

/* A server that hangs gets a single PING, instead of the requests of all callers, whose fate nobody
 * would know. */
static void open_command(server *server) {
    connection_owner owner = {.on_answered = on_answered,
                              .on_stalled = on_stalled,
                              .on_broken = on_broken,
                              .arg = server,
                              .place = &server->command,
                              .needs_proof = server->draining_count > 0};
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
    for (size_t i = 0; i < server->draining_count; i++)
        connection_send(server->draining[i], command, 1, NULL);
}

bool server_is_available(server *server) {
    bool is_available = breaker_allows(&server->breaker, loop_now_us(server->loop));
    if (!is_available && !server->is_left_alone)
        diagnose(server->endpoint.options.diagnostics, DLOCK_LOG_WARNING, server->name,
                 "left alone for a moment, after failures in a row", "");
    if (!is_available) server->is_left_alone = true;
    return is_available;
}
