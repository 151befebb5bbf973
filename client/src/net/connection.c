/* SPDX-License-Identifier: BSD-3-Clause */
/* connection.c - see connection.h.
 *
 *   opening    requests are queued already; the first task makes connecting.c begin
 *   greeting   AUTH, SELECT and ROLE, as the URL asks for, are the first request. Nothing else is
 *              sent before they are answered: a command must not reach the wrong database. For an
 *              owner that needs proof, a PING takes the place of an empty greeting
 *   ready      queued bytes go out before the loop sleeps; replies are given to requests in order
 *   broken     the owner is told, then each request, then the memory is freed; by a task of the
 *              loop
 *   closed     the same without telling anybody
 *
 * Invariants: a request under way has exactly one entry in the pipeline; an abandoned one leaves an
 * entry without a request (or none, if nothing was sent). Memory is freed by a task only, so
 * callbacks may close the connection that calls them. */
#include "net/connection_state.h"

#include <errno.h>
#include <poll.h>

enum { QUIET_US = 10000, GREETING_MAX = 3 };

/* -- diagnostics: a line when the state of the server changes, not for each connection */

static void diagnose_endpoint(const endpoint *endpoint, dlock_log_level level, const char *what,
                              const char *cause) {
    char server[CAUSE_SIZE];
    url_describe(&endpoint->url, server, sizeof(server));
    diagnose(endpoint->options.diagnostics, level, server, what, cause);
}

static void note_ready(endpoint *endpoint) {
    if (endpoint->state != ENDPOINT_UP)
        diagnose_endpoint(endpoint, DLOCK_LOG_INFO,
                          endpoint->state == ENDPOINT_NEW ? "connected" : "connected again", "");
    endpoint->state = ENDPOINT_UP;
}

void endpoint_note_loss(endpoint *endpoint, const char *cause) {
    if (endpoint->state == ENDPOINT_UP)
        diagnose_endpoint(endpoint, DLOCK_LOG_WARNING, "the connection is lost", cause);
    endpoint->state = ENDPOINT_LOST;
}

static void endpoint_note_failure(endpoint *endpoint, dlock_status failure, const char *cause) {
    dlock_log_level level = failure == DLOCK_UNREACHABLE ? DLOCK_LOG_WARNING : DLOCK_LOG_ERROR;
    if (endpoint->state != ENDPOINT_DOWN)
        diagnose_endpoint(endpoint, level, "no connection", cause);
    endpoint->state = ENDPOINT_DOWN;
}

/* -- ending */

/* Nothing comes from the loop any more but the task. */
static void disconnect(connection *conn, phase phase) {
    connecting *state = &conn->connecting;
    tls_free(conn->tls); /* says goodbye to the server */
    conn->tls = NULL;
    bool was_owing = !connection_is_broken(conn);
    if (was_owing) connection_count_owed(conn, -(ptrdiff_t)conn->pipeline.marked);
    /* A child that was forked may have a copy: the server is to notice all the same. */
    if (connection_is_open(conn)) shutdown(conn->io.fd, SHUT_RDWR);
    conn->phase = phase;
    if (conn->io.fd >= 0) loop_close(conn->loop, &conn->io);
    if (state->lookup_io.fd >= 0) loop_close(conn->loop, &state->lookup_io);
    lookup_leave(state->lookup);
    state->lookup = NULL;
    loop_clear_timer(conn->loop, &conn->timer);
    loop_defer(conn->loop, &conn->task);
}

void connection_fail(connection *conn, dlock_status failure, const char *cause) {
    if (connection_is_broken(conn)) return;
    text_copy(conn->cause, sizeof(conn->cause), cause);
    conn->failure = failure;
    if (conn->phase == READY)
        endpoint_note_loss(conn->endpoint, conn->cause);
    else
        endpoint_note_failure(conn->endpoint, failure, conn->cause);
    disconnect(conn, BROKEN);
}

static void free_connection(connection *conn) {
    list_remove(&conn->task.node);
    pipeline_free(&conn->pipeline);
    free(conn->in.data);
    resp_reader_free(&conn->reader);
    free(conn);
}

void connection_end_request(request *request, dlock_status status, const char *cause) {
    if (request == NULL) return;
    request->conn = NULL;
    if (request->on_done != NULL) request->on_done(request, status, cause);
}

/* The owner first: a request that is sent again must not come here. */
static void tell_broken(connection *conn) {
    if (conn->owner.on_broken != NULL) conn->owner.on_broken(conn->owner.arg, conn);
    conn->phase = CLOSED;
    bool is_first = true;
    while (conn->pipeline.count > 0) {
        entry ended = pipeline_pop(&conn->pipeline);
        bool was_sent = ended.sent_us != 0;
        bool is_final = conn->failure == DLOCK_PROTOCOL ? is_first : conn->failure == DLOCK_REFUSED;
        is_first = false;
        connection_end_request(ended.request,
                               was_sent && !is_final ? DLOCK_IN_DOUBT : conn->failure, conn->cause);
    }
}

void connection_close(connection *conn) {
    if (conn == NULL || conn->phase == CLOSED) return;
    /* A release may be queued behind an acquire that was sent. */
    pipeline_compact(&conn->pipeline);
    const bytes *out = &conn->pipeline.out;
    bool is_in_order = conn->phase == READY && !conn->is_writing && conn->pipeline.rest.size == 0;
    if (is_in_order && out->size > 0) connection_write(conn, out->data, out->size);
    disconnect(conn, CLOSED);
    while (conn->pipeline.count > 0) {
        request *abandoned = pipeline_pop(&conn->pipeline).request;
        if (abandoned != NULL) abandoned->conn = NULL;
    }
}

/* -- requests */

static void run_connection_task(loop_task *task) {
    connection *conn = container_of(task, connection, task);
    if (conn->phase == BROKEN) tell_broken(conn);
    if (conn->phase == CLOSED)
        free_connection(conn);
    else if (conn->phase == OPENING)
        connection_connect(conn);
    else
        connection_flush(conn);
}

bool connection_send(connection *conn, const command commands[], int count, request *request) {
    if (!pipeline_add(&conn->pipeline, commands, count, request)) return false;
    if (conn->phase != CLOSED) loop_defer(conn->loop, &conn->task);
    if (request == NULL) return true;
    request->sent_us = 0;
    request->conn = conn;
    return true;
}

bool connection_abandon(request *request) {
    connection *conn = request->conn;
    if (conn == NULL) return request->sent_us != 0;
    request->conn = NULL;
    return pipeline_abandon(&conn->pipeline, request);
}

/* -- the greeting */

/* The result is how many commands there are. They are empty before, and borrow from the URL. */
static int greeting_commands(command commands[GREETING_MAX], const url *url) {
    int count = 0;
    if (url->password[0] != '\0') {
        command *auth = &commands[count++];
        command_add(auth, "AUTH");
        if (url->user[0] != '\0') command_add(auth, url->user);
        command_add(auth, url->password);
    }
    if (url->db != 0) {
        command *select = &commands[count++];
        command_add(select, "SELECT");
        command_add_number(select, (uint64_t)url->db);
    }
    if (url->must_be_master) command_add(&commands[count++], "ROLE");
    return count;
}

void connection_fail_by_error(connection *conn, const reply *error) {
    char text[CAUSE_SIZE];
    reply_copy_text(error, text, sizeof(text));
    error_meaning meaning = error_reply_meaning(error);
    connection_fail(conn, meaning.is_transient ? DLOCK_UNREACHABLE : meaning.status, text);
}

static void on_greeting(request *greeting, int index, const reply *reply) {
    connection *conn = container_of(greeting, connection, greeting);
    const url *url = &conn->endpoint->url;
    bool is_role = url->must_be_master && index == (url->password[0] != '\0') + (url->db != 0);
    const struct reply *role = is_role ? reply_element(reply, 0) : NULL;
    if (reply->kind == REPLY_ERROR) {
        connection_fail_by_error(conn, reply);
    } else if (role != NULL && !reply_is_text(role, "master")) {
        connection_fail(conn, DLOCK_UNREACHABLE, "it is not the master");
    } else if (role == NULL && (is_role || !reply_is_text(reply, "OK"))) {
        connection_fail(conn, DLOCK_PROTOCOL, "an unexpected reply to AUTH, SELECT or ROLE");
    }
}

/* A lasting error, like NOPERM, is a sign of life as well. A server with too many clients closes
 * the connection after its error. */
static void on_pong(request *ping, int index, const reply *reply) {
    (void)index;
    if (reply->kind == REPLY_ERROR && error_reply_meaning(reply).is_transient)
        connection_fail_by_error(container_of(ping, connection, greeting), reply);
}

static void become_ready(connection *conn) {
    conn->phase = READY;
    note_ready(conn->endpoint);
    conn->heard_us = loop_now_us(conn->loop);
    loop_defer(conn->loop, &conn->task); /* sends, once the replies that came are read */
}

static void on_greeted(request *greeting, dlock_status status, const char *cause) {
    (void)cause;
    connection *conn = container_of(greeting, connection, greeting);
    if (status == DLOCK_OK) become_ready(conn);
}

void connection_on_open(connection *conn) {
    conn->phase = GREETING;
    if (conn->pipeline.rest.size == 0)
        become_ready(conn);
    else
        connection_flush(conn);
}

/* False: no memory. */
static bool queue_greeting(connection *conn) {
    pipeline *pipeline = &conn->pipeline;
    command commands[GREETING_MAX] = {{0}};
    int count = greeting_commands(commands, &conn->endpoint->url);
    conn->greeting.on_reply = on_greeting;
    if (count == 0 && conn->owner.needs_proof) {
        command_add(&commands[count++], "PING");
        conn->greeting.on_reply = on_pong;
    }
    if (count == 0) return true;
    conn->greeting.on_done = on_greeted;
    if (!connection_send(conn, commands, count, &conn->greeting)) return false;
    pipeline->rest = pipeline->out;
    pipeline->out = (bytes){0};
    pipeline_at(pipeline, 0)->size = 0;
    return true;
}

/* A name is for people: nobody waits for the reply, which may be NOPERM. False: no memory. */
static bool queue_name(connection *conn) {
    const char *name = conn->endpoint->options.name;
    command named = {0};
    if (name == NULL) return true;
    command_add_words(&named, COMMAND_WORDS("CLIENT", "SETNAME", name));
    return connection_send(conn, &named, 1, NULL);
}

/* -- public */

connection *connection_open(endpoint *endpoint, const connection_owner *owner) {
    connection *conn = calloc(1, sizeof(*conn));
    if (conn == NULL) return NULL;
    conn->owner = *owner;
    conn->loop = endpoint->options.loop;
    conn->endpoint = endpoint;
    conn->io.fd = conn->connecting.lookup_io.fd = -1;
    conn->task.run = run_connection_task;
    if (!queue_greeting(conn) || !queue_name(conn)) {
        free_connection(conn);
        return NULL;
    }
    loop_defer(conn->loop, &conn->task);
    return conn;
}

bool connection_is_ready(const connection *conn) {
    return conn->phase == READY;
}

bool connection_is_idle(const connection *conn) {
    return conn->phase == READY && conn->pipeline.count == 0;
}

/* TLS has messages of its own, like new keys and session tickets, which are no reply. */
bool connection_is_alive(connection *conn) {
    char byte;
    struct pollfd now = {.fd = conn->io.fd, .events = POLLIN};
    if (!connection_is_idle(conn)) return true;
    if (loop_now_us(conn->loop) - conn->heard_us < QUIET_US) return true;
    if (poll(&now, 1, 0) == 0) return true;
    return conn->tls != NULL && tls_read(conn->tls, &byte, 1) < 0 && errno == EAGAIN &&
           !conn->tls->wants_to_write;
}
