/* SPDX-License-Identifier: BSD-3-Clause */
/* server.c - see server.h.
 *
 *   send      on the command connection, which is opened when it is needed
 *   stalled   the command connection becomes the draining one, which is closed once it owes
 *             nothing; an older draining one is given up
 *   broken    the next send opens a new connection
 *   own       used by somebody, who has a share of the server by that; or kept: idle, for the next
 *             user, for a second, or until the replies have come that are still owed
 *
 * Invariants: at most one command and one draining connection. A kept connection has no share of
 * the server, and its timer is set. */
#include "net/server.h"

#include "net/connection_state.h"
#include <sys/un.h>

enum { IDLE_MS = 1000, LINGER_MS = 10000, IDLE_MAX = 8, KEPT_MAX = 64 };

/* -- life */

static void close_own(own_connection *own);

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
    list_init(&server->kept);
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
    list_each(own_connection, own, &server->kept, node)
        close_own(own);
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

static void on_stalled(void *arg, connection *conn) {
    server *server = arg;
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

bool server_send(server *server, const command commands[], int count, request *request) {
    if (server->command != NULL && !connection_is_alive(server->command)) {
        endpoint_note_loss(&server->endpoint, "the server closed the connection");
        connection_close(server->command);
        server->command = NULL;
    }
    if (server->command == NULL)
        server->command =
            connection_open(&server->endpoint, &(connection_owner){.on_answered = on_answered,
                                                                   .on_stalled = on_stalled,
                                                                   .on_broken = on_broken,
                                                                   .arg = server});
    return server->command != NULL && connection_send(server->command, commands, count, request);
}

/* -- own connections */

static void close_own(own_connection *own) {
    server *server = own->server;
    bool has_share = !own->is_kept;
    connection_close(own->conn);
    list_remove(&own->node);
    if (own->is_kept) server->kept_count--;
    loop_clear_timer(server->loop, &own->kept_timer);
    free(own);
    if (has_share) server_free(server);
}

static void limit_kept(own_connection *own, int64_t keep_ms) {
    loop *loop = own->server->loop;
    loop_set_timer(loop, &own->kept_timer, deadline_after_ms(loop_now_us(loop), keep_ms));
}

static void on_kept_due(loop_timer *timer) {
    close_own(container_of(timer, own_connection, kept_timer));
}

/* A connection that lingers and owes nothing any more is kept like other idle ones. */
static void on_own_answered(void *arg, connection *conn) {
    own_connection *own = arg;
    if (!own->is_kept || !connection_is_idle(conn)) return;
    limit_kept(own, IDLE_MS);
    if (own->server->kept_count > IDLE_MAX) close_own(own);
}

static void on_own_broken(void *arg, connection *conn) {
    (void)conn;
    own_connection *own = arg;
    own->conn = NULL;
    if (own->is_kept) close_own(own);
}

/* A kept connection that owes no reply. NULL: there is none. */
static own_connection *take_idle(server *server) {
    list_each(own_connection, own, &server->kept, node) {
        if (!connection_is_idle(own->conn)) continue;
        if (!connection_is_alive(own->conn)) {
            close_own(own);
            continue;
        }
        list_remove(&own->node);
        loop_clear_timer(server->loop, &own->kept_timer);
        server->kept_count--;
        own->is_kept = false;
        return own;
    }
    return NULL;
}

static own_connection *new_own(server *server) {
    own_connection *own = calloc(1, sizeof(*own));
    if (own == NULL) return NULL;
    own->server = server;
    own->kept_timer.on_due = on_kept_due;
    connection_owner owner = {
        .on_answered = on_own_answered, .on_broken = on_own_broken, .arg = own};
    own->conn = connection_open(&server->endpoint, &owner);
    if (own->conn != NULL) return own;
    free(own);
    return NULL;
}

own_connection *server_open_own(server *server) {
    own_connection *own = take_idle(server);
    if (own == NULL) own = new_own(server);
    if (own != NULL) server_share(server);
    return own;
}

static void keep(own_connection *own, int64_t keep_ms) {
    server *server = own->server;
    list_prepend(&server->kept, &own->node);
    own->is_kept = true;
    server->kept_count++;
    limit_kept(own, keep_ms);
    loop_start_background(server->loop); /* best effort: else the next call closes it */
    server_free(server);
}

void own_connection_free(own_connection *own) {
    if (own == NULL) return;
    server *server = own->server;
    bool is_last_share = server->shares == 1, is_usable = own->conn != NULL && !is_last_share;
    bool is_idle = is_usable && connection_is_idle(own->conn);
    if (is_idle && server->kept_count < IDLE_MAX)
        keep(own, IDLE_MS);
    else if (is_usable && !is_idle && connection_is_ready(own->conn) &&
             server->kept_count < KEPT_MAX)
        keep(own, LINGER_MS);
    else
        close_own(own);
}

void server_send_behind(server *server, const command *command) {
    if (server->draining != NULL) connection_send(server->draining, command, 1, NULL);
    list_each(own_connection, own, &server->kept, node)
        if (!connection_is_idle(own->conn)) connection_send(own->conn, command, 1, NULL);
}

bool server_is_available(server *server) {
    bool is_available = breaker_allows(&server->breaker, loop_now_us(server->loop));
    if (!is_available && !server->is_left_alone)
        diagnose(server->endpoint.options.diagnostics, DLOCK_LOG_WARNING, server->name,
                 "left alone for a moment, after failures in a row", "");
    if (!is_available) server->is_left_alone = true;
    return is_available;
}
