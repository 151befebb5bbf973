/* SPDX-License-Identifier: BSD-3-Clause */
/* server.c - see server.h.
 *
 *   send      on the command connection, which is opened when it is needed
 *   stalled   the command connection becomes the draining one, which is closed once it owes
 *             nothing; an older draining one is given up. Those who are parked are told of the
 *             doubt
 *   broken    the next send opens a new connection
 *   own       used by somebody, who has a share of the server by that; or kept: idle, for the next
 *             user, for a second, or with replies that are still owed, for longer: a RELEASE
 *             follows the request that was given up, and is to be served. A server that still has
 *             to answer, to WAIT for instance, would not read on after the end of the connection
 *   probe     while somebody is parked and the command connection is quiet, a PING now and then
 *
 * Invariants: at most one command and one draining connection. A kept connection has no share of
 * the server. The probe timer is set while somebody is parked, the timer of a connection while it
 * is kept. */
#include "net/server.h"

#include "net/connection_state.h"
#include <sys/un.h>

enum { PROBE_MS = 2000, IDLE_MS = 1000, LINGER_MS = 10000, IDLE_MAX = 8, KEPT_MAX = 64 };

/* -- signs of life for those who are parked */

static void on_probe_due(loop_timer *timer) {
    server *server = container_of(timer, struct server, probe_timer);
    int64_t now_us = loop_now_us(server->loop);
    int64_t heard_us = server->command == NULL ? 0 : server->command->heard_us;
    if (now_us - heard_us >= (int64_t)PROBE_MS * 1000) {
        command ping = {0};
        command_add(&ping, "PING"); /* an error is a sign of life as well */
        server_send(server, &ping, 1, NULL);
    }
    loop_set_timer(server->loop, timer, deadline_after_ms(now_us, PROBE_MS));
}

static void run_doubt_task(loop_task *task) {
    own_connection *own = container_of(task, own_connection, doubt_task);
    if (own->is_parked && own->on_doubt != NULL) own->on_doubt(own->arg);
}

/* By tasks: a callback may close any own connection, and give up the last share of the server. */
static void doubt_parked(server *server) {
    list_each(own_connection, own, &server->parked, node)
        loop_defer(server->loop, &own->doubt_task);
}

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
    server->probe_timer.on_due = on_probe_due;
    list_init(&server->parked);
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
    list_each(own_connection, own, &server->kept, node)
        own_connection_close(own);
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

static void drop_command(server *server) {
    server->command = NULL;
    if (server->reset_task != NULL) loop_defer(server->loop, server->reset_task);
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
    drop_command(server);
    doubt_parked(server);
}

static void on_broken(void *arg, connection *conn) {
    server *server = arg;
    breaker_note(&server->breaker, false, loop_now_us(server->loop));
    bool is_unreachable = conn == server->command && conn->heard_us == 0;
    if (conn == server->command) drop_command(server);
    if (conn == server->draining) server->draining = NULL;
    if (is_unreachable) doubt_parked(server);
}

/* -- short commands */

bool server_send(server *server, const command commands[], int count, request *request) {
    if (server->command != NULL && !connection_is_alive(server->command)) {
        connection_close(server->command);
        drop_command(server);
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

static void limit_kept(own_connection *own, int64_t keep_ms) {
    loop *loop = own->server->loop;
    loop_set_timer(loop, &own->kept_timer, deadline_after_ms(loop_now_us(loop), keep_ms));
}

static void on_kept_due(loop_timer *timer) {
    own_connection_close(container_of(timer, own_connection, kept_timer));
}

/* A connection that lingers and owes nothing any more is kept like other idle ones. */
static void on_own_answered(void *arg, connection *conn) {
    own_connection *own = arg;
    if (!own->is_kept || !connection_is_idle(conn)) return;
    limit_kept(own, IDLE_MS);
    if (own->server->kept_count > IDLE_MAX) own_connection_close(own);
}

static void on_own_broken(void *arg, connection *conn) {
    (void)conn;
    own_connection *own = arg;
    own->conn = NULL;
    if (own->is_kept)
        own_connection_close(own);
    else if (own->on_broken != NULL)
        own->on_broken(own->arg);
}

static bool on_own_push(void *arg, const reply *reply) {
    own_connection *own = arg;
    if (own->on_message == NULL) return false;
    own->on_message(own->arg, reply);
    return true;
}

/* A kept connection that owes no reply. NULL: there is none. */
static own_connection *take_idle(server *server) {
    list_each(own_connection, own, &server->kept, node) {
        if (!connection_is_idle(own->conn)) continue;
        if (!connection_is_alive(own->conn)) {
            own_connection_close(own);
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

static own_connection *new_own(server *server, bool needs_proof) {
    own_connection *own = calloc(1, sizeof(*own));
    if (own == NULL) return NULL;
    own->server = server;
    own->kept_timer.on_due = on_kept_due;
    own->doubt_task.run = run_doubt_task;
    connection_owner owner = {.on_answered = on_own_answered,
                              .on_push = on_own_push,
                              .on_broken = on_own_broken,
                              .arg = own,
                              .needs_proof = needs_proof};
    own->conn = connection_open(&server->endpoint, &owner);
    if (own->conn != NULL) return own;
    free(own);
    return NULL;
}

own_connection *server_open_new_own(server *server) {
    own_connection *own = new_own(server, true);
    if (own != NULL) server_share(server);
    return own;
}

own_connection *server_open_own(server *server, bool is_parked) {
    own_connection *own = take_idle(server);
    if (own == NULL) own = new_own(server, false);
    if (own == NULL) return NULL;
    server_share(server);
    own->is_parked = is_parked;
    if (!is_parked) return own;
    loop *loop = server->loop;
    int64_t probe_us = deadline_after_ms(loop_now_us(loop), PROBE_MS);
    if (list_is_empty(&server->parked)) loop_set_timer(loop, &server->probe_timer, probe_us);
    list_append(&server->parked, &own->node);
    return own;
}

void own_connection_close(own_connection *own) {
    if (own == NULL) return;
    server *server = own->server;
    bool has_share = !own->is_kept;
    connection_close(own->conn);
    own_connection_unpark(own);
    list_remove(&own->node);
    if (own->is_kept) server->kept_count--;
    loop_clear_timer(server->loop, &own->kept_timer);
    list_remove(&own->doubt_task.node);
    free(own);
    if (has_share) server_free(server);
}

static void keep(own_connection *own, int64_t keep_ms) {
    server *server = own->server;
    own_connection_unpark(own);
    list_prepend(&server->kept, &own->node);
    own->is_kept = true;
    own->on_broken = own->on_doubt = NULL;
    own->on_message = NULL;
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
        own_connection_close(own);
}

void own_connection_unpark(own_connection *own) {
    server *server = own->server;
    if (!own->is_parked) return;
    own->is_parked = false;
    list_remove(&own->node);
    if (list_is_empty(&server->parked)) loop_clear_timer(server->loop, &server->probe_timer);
}

void server_send_behind(server *server, const command *command) {
    if (server->draining != NULL) connection_send(server->draining, command, 1, NULL);
    list_each(own_connection, own, &server->kept, node)
        if (!connection_is_idle(own->conn)) connection_send(own->conn, command, 1, NULL);
}

bool server_is_available(server *server) {
    return breaker_allows(&server->breaker, loop_now_us(server->loop));
}
