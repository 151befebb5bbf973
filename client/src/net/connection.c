/* SPDX-License-Identifier: BSD-3-Clause */
/* connection.c - see connection.h. connecting.c makes the socket; the rest is here.
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
 * The sections of this file:
 *
 *   pipeline   requests that are queued or in flight, and the bytes that are still to be sent. An
 *              entry that is abandoned before it is sent is removed together with others: one by
 *              one, thousands of requests that time out before there is a connection would take
 *              quadratic time
 *   sending    a thread takes the queued bytes and sends them without the mutex (loop_write()), or
 *              with the mutex if there is TLS. While it sends, other threads only queue bytes,
 *              which that thread sends next. What the kernel did not take is the rest, which is
 *              sent first next time
 *   reading    whole replies are given to the requests; the beginning of a reply is kept
 *   stall      the oldest request has had no reply for an I/O timeout, nor has any other request
 *
 * Invariants: a request under way has exactly one entry in the pipeline; an abandoned one leaves an
 * entry without a request (or none, if nothing was sent). Entries are in the order of their bytes.
 * The first marked entries are sent, or are being sent; out has the bytes of the entries behind
 * these, which alone can be removed. Of these, at most half are removed ones that are still there,
 * and none of them is ever sent. Memory is freed by a task only, so callbacks may close the
 * connection that calls them. */
#include "net/connection_state.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>

enum { QUIET_US = 10000, GREETING_MAX = 3 };

/* In one turn of the loop, which has the mutex: a server that floods the connection must not keep
 * the calls of other threads waiting. */
enum { READ_SIZE = 16384, READS_PER_TURN = 8 };

static void count_owed(const connection *conn, ptrdiff_t change) {
    if (!conn->owner.is_parked) loop_count_owed(conn->loop, change);
}

/* Bytes can go out and come in. */
static bool is_open(const connection *conn) {
    return conn->phase == GREETING || conn->phase == READY;
}

/* Broken or closed: nothing is sent or read any more. */
static bool is_broken(const connection *conn) {
    return conn->phase == BROKEN || conn->phase == CLOSED;
}

/* -- the pipeline */

static void pipeline_free(pipeline *pipeline) {
    free(pipeline->entries);
    free(pipeline->out.data);
    free(pipeline->rest.data);
}

static entry *pipeline_at(pipeline *pipeline, size_t index) {
    return &pipeline->entries[(pipeline->first + index) & (pipeline->capacity - 1)];
}

static bool reserve_entry(pipeline *pipeline) {
    if (pipeline->count < pipeline->capacity) return true;
    size_t capacity = pipeline->capacity == 0 ? 8 : pipeline->capacity * 2;
    entry *grown = malloc(capacity * sizeof(grown[0]));
    if (grown == NULL) return false;
    for (size_t i = 0; i < pipeline->count; i++)
        grown[i] = *pipeline_at(pipeline, i);
    free(pipeline->entries);
    pipeline->entries = grown;
    pipeline->capacity = capacity;
    pipeline->first = 0;
    return true;
}

/* Appends the commands, and sets request->sequence. False: no memory, nothing changed. */
static bool pipeline_add(pipeline *pipeline, const command commands[], int count,
                         request *request) {
    bytes *out = &pipeline->out;
    size_t before = out->size;
    bool is_added = reserve_entry(pipeline);
    for (int i = 0; i < count && is_added; i++)
        is_added = command_append(&commands[i], out);
    if (!is_added) {
        out->size = before;
        return false;
    }
    entry *added = pipeline_at(pipeline, pipeline->count);
    *added = (entry){.request = request,
                     .replies = count,
                     .left = count,
                     .size = out->size - before,
                     .reply_bytes_max = REPLY_BYTES};
    if (request != NULL && request->reply_bytes_max > 0)
        added->reply_bytes_max = request->reply_bytes_max;
    if (request != NULL) request->sequence = pipeline->first_sequence + pipeline->count;
    pipeline->count++;
    return true;
}

/* All replies of the first entry have come. */
static entry pipeline_pop(pipeline *pipeline) {
    entry popped = *pipeline_at(pipeline, 0);
    pipeline->first = (pipeline->first + 1) & (pipeline->capacity - 1);
    pipeline->first_sequence++;
    pipeline->count--;
    if (pipeline->marked > 0) pipeline->marked--;
    if (popped.is_removed) pipeline->removed--;
    return popped;
}

/* Entries that were abandoned before they were sent go, with their bytes. */
static void pipeline_compact(pipeline *pipeline) {
    bytes *out = &pipeline->out;
    size_t kept = pipeline->marked, from = 0, to = 0;
    if (pipeline->removed == 0) return;
    for (size_t i = pipeline->marked; i < pipeline->count; i++) {
        entry each = *pipeline_at(pipeline, i);
        if (!each.is_removed) {
            if (each.size > 0) memmove(out->data + to, out->data + from, each.size);
            if (each.request != NULL) each.request->sequence = pipeline->first_sequence + kept;
            *pipeline_at(pipeline, kept++) = each;
            to += each.size;
        }
        from += each.size;
    }
    out->size = to;
    pipeline->count = kept;
    pipeline->removed = 0;
}

/* Nobody wants the replies to this request any more. False: nothing was taken to be sent, and
 * nothing will be. */
static bool pipeline_abandon(pipeline *pipeline, const request *request) {
    size_t index = (size_t)(request->sequence - pipeline->first_sequence);
    entry *abandoned = pipeline_at(pipeline, index);
    abandoned->request = NULL;
    if (index < pipeline->marked) return true;
    abandoned->is_removed = true;
    pipeline->removed++;
    if (pipeline->removed * 2 > pipeline->count - pipeline->marked) pipeline_compact(pipeline);
    return false;
}

/* The entries before this index. */
static unsigned mark_sent(pipeline *pipeline, size_t end, int64_t now_us) {
    unsigned commands = 0;
    while (pipeline->marked < end) {
        entry *entry = pipeline_at(pipeline, pipeline->marked++);
        entry->sent_us = now_us;
        request *request = entry->request;
        if (request != NULL) request->sent_us = now_us;
        if (request != NULL && request->on_sent != NULL) request->on_sent(request);
        commands += (unsigned)entry->replies;
    }
    return commands;
}

/* Takes bytes to be sent: the rest, else, unless it is the time of the greeting, all that are
 * queued. Their requests are marked as sent; the result is how many commands these are.
 * output->size 0: there is nothing to send. */
static unsigned pipeline_take(pipeline *pipeline, bool is_greeting, int64_t now_us, bytes *output) {
    bytes *rest = &pipeline->rest, *out = &pipeline->out;
    bool has_rest = rest->size > 0;
    *output = (bytes){0};
    if (!has_rest && (is_greeting || out->size == 0)) return 0;
    if (!has_rest) pipeline_compact(pipeline);
    *output = has_rest ? *rest : *out;
    if (!has_rest) *out = *rest;
    *rest = (bytes){0};
    size_t end = has_rest ? (size_t)is_greeting : pipeline->count;
    return mark_sent(pipeline, end, now_us);
}

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

/* -- the socket */

/* After a recv(2) or send(2) without waiting: if no bytes will ever be moved again, the connection
 * fails. */
static void check_socket(connection *conn, ssize_t count, int fault) {
    bool is_temporary = fault == EAGAIN || fault == EWOULDBLOCK || fault == EINTR;
    if (count == 0)
        connection_fail(conn, DLOCK_UNREACHABLE, "the server closed the connection");
    else if (count < 0 && !is_temporary && conn->tls != NULL)
        connection_fail(conn, conn->tls->failure, conn->tls->cause);
    else if (count < 0 && !is_temporary)
        connection_fail(conn, DLOCK_UNREACHABLE, strerror(fault));
}

static ssize_t read_socket(connection *conn, char *data, size_t size) {
    ssize_t count =
        conn->tls != NULL ? tls_read(conn->tls, data, size) : recv(conn->io.fd, data, size, 0);
    check_socket(conn, count, errno);
    return count;
}

/* Like send(2) without waiting. The connection fails if bytes cannot be sent any more. */
static ssize_t write_socket(connection *conn, const char *data, size_t size) {
    ssize_t count;
    do
        count = conn->tls != NULL ? tls_write(conn->tls, data, size)
                                  : send(conn->io.fd, data, size, MSG_NOSIGNAL);
    while (count < 0 && errno == EINTR);
    check_socket(conn, count, errno);
    return count;
}

bool connection_watch(connection *conn, uint32_t events) {
    if (loop_watch(conn->loop, &conn->io, events | EPOLLRDHUP | EPOLLET)) return true;
    connection_fail(conn, DLOCK_NO_MEMORY, "no memory or descriptor to watch a connection");
    return false;
}

/* -- ending */

/* Nothing comes from the loop any more but the task. */
static void disconnect(connection *conn, phase phase) {
    connecting *state = &conn->connecting;
    tls_free(conn->tls); /* says goodbye to the server */
    conn->tls = NULL;
    bool was_owing = !is_broken(conn);
    if (was_owing) count_owed(conn, -(ptrdiff_t)conn->pipeline.marked);
    /* A child that was forked may have a copy: the server is to notice all the same. */
    if (is_open(conn)) shutdown(conn->io.fd, SHUT_RDWR);
    conn->phase = phase;
    if (conn->io.fd >= 0) loop_close(conn->loop, &conn->io);
    if (state->lookup_io.fd >= 0) loop_close(conn->loop, &state->lookup_io);
    lookup_leave(state->lookup);
    state->lookup = NULL;
    loop_clear_timer(conn->loop, &conn->timer);
    loop_defer(conn->loop, &conn->task);
}

void connection_fail(connection *conn, dlock_status failure, const char *cause) {
    if (is_broken(conn)) return;
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

/* No reply follows. request NULL: does nothing. */
static void end_request(request *request, dlock_status status, const char *cause) {
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
        end_request(ended.request, was_sent && !is_final ? DLOCK_IN_DOUBT : conn->failure,
                    conn->cause);
    }
}

void connection_close(connection *conn) {
    if (conn == NULL || conn->phase == CLOSED) return;
    /* A release may be queued behind an acquire that was sent. */
    pipeline_compact(&conn->pipeline);
    const bytes *out = &conn->pipeline.out;
    bool is_in_order = conn->phase == READY && !conn->is_writing && conn->pipeline.rest.size == 0;
    if (is_in_order && out->size > 0) write_socket(conn, out->data, out->size);
    disconnect(conn, CLOSED);
    while (conn->pipeline.count > 0) {
        request *abandoned = pipeline_pop(&conn->pipeline).request;
        if (abandoned != NULL) abandoned->conn = NULL;
    }
}

/* -- sending */

/* When the oldest request will have been unanswered for an I/O timeout. DEADLINE_NEVER: there is
 * none, or the owner does not want to know or was told. */
static int64_t stalled_at_us(connection *conn) {
    bool is_wanted = conn->owner.on_stalled != NULL && !conn->is_stalled;
    if (!is_wanted || conn->pipeline.marked == 0) return DEADLINE_NEVER;
    int64_t sent_us = pipeline_at(&conn->pipeline, 0)->sent_us;
    return deadline_after_ms(sent_us > conn->heard_us ? sent_us : conn->heard_us,
                             conn->endpoint->options.io_timeout_ms);
}

static void on_reply_overdue(loop_timer *timer) {
    connection *conn = container_of(timer, connection, timer);
    int64_t due_us = stalled_at_us(conn);
    if (loop_now_us(conn->loop) < due_us) {
        loop_set_timer(conn->loop, timer, due_us);
        return;
    }
    conn->is_stalled = true;
    conn->owner.on_stalled(conn->owner.arg, conn);
}

static bool take_output(loop_io *io, bytes *output) {
    connection *conn = container_of(io, connection, io);
    if (!is_open(conn) || conn->is_writing) return false;
    size_t marked = conn->pipeline.marked;
    bool is_greeting = conn->phase == GREETING;
    unsigned commands =
        pipeline_take(&conn->pipeline, is_greeting, loop_now_us(conn->loop), output);
    if (output->size == 0) return false;
    count_owed(conn, (ptrdiff_t)(conn->pipeline.marked - marked));
    if (commands > 0 && !is_greeting)
        atomic_fetch_add_explicit(conn->endpoint->options.command_count, commands,
                                  memory_order_relaxed);
    conn->is_writing = true;
    if (!heap_has(&conn->timer.node)) loop_set_timer(conn->loop, &conn->timer, stalled_at_us(conn));
    return true;
}

/* count: bytes that were sent; less than all if the kernel has no room. True: more can be sent, if
 * more was queued meanwhile. */
static bool note_written(connection *conn, bytes *output, ssize_t count) {
    size_t written = count > 0 ? (size_t)count : 0;
    bool is_full = written < output->size;
    conn->is_writing = false;
    bytes_remove(output, 0, written);
    conn->pipeline.rest = *output;
    if (is_broken(conn)) return false;
    bool is_tls_full = conn->tls != NULL && conn->tls->wants_to_write;
    connection_watch(conn, is_full || is_tls_full ? EPOLLIN | EPOLLOUT : EPOLLIN);
    return !is_full;
}

/* TLS takes one record at a time. The result is how many bytes were sent. */
static ssize_t write_records(connection *conn, const bytes *output) {
    size_t written = 0;
    while (written < output->size) {
        ssize_t count = write_socket(conn, output->data + written, output->size - written);
        if (count <= 0) break;
        written += (size_t)count;
    }
    return (ssize_t)written;
}

/* Queues or, with TLS, sends the bytes of the pipeline. */
static void flush_output(connection *conn) {
    bytes output;
    if (!is_open(conn)) return; /* connecting.c sets the loop_io anew until then */
    if (conn->tls == NULL) {
        bool has_output = conn->pipeline.rest.size > 0 || conn->pipeline.out.size > 0;
        if (has_output) loop_write(conn->loop, &conn->io, conn->pipeline.count);
        return;
    }
    while (take_output(&conn->io, &output))
        if (!note_written(conn, &output, write_records(conn, &output))) return;
}

static void on_output_written(loop_io *io, bytes *output, ssize_t count, int fault) {
    connection *conn = container_of(io, connection, io);
    check_socket(conn, count, fault);
    if (note_written(conn, output, count)) flush_output(conn);
}

/* -- reading */

/* Breaks the connection with the status that the error reply means. */
static void fail_by_error(connection *conn, const reply *error) {
    char text[CAUSE_SIZE];
    reply_copy_text(error, text, sizeof(text));
    error_meaning meaning = error_reply_meaning(error);
    connection_fail(conn, meaning.is_transient ? DLOCK_UNREACHABLE : meaning.status, text);
}

static void take_reply(connection *conn, const reply *reply) {
    if (conn->pipeline.marked == 0) {
        if (reply->kind == REPLY_ERROR) /* the server has too many clients, for instance */
            fail_by_error(conn, reply);
        else
            connection_fail(conn, DLOCK_PROTOCOL, "a reply that no request asked for");
        return;
    }
    conn->heard_us = loop_now_us(conn->loop);
    entry *first = pipeline_at(&conn->pipeline, 0);
    int index = first->replies - first->left--;
    request *request = first->request;
    if (request != NULL && request->on_reply != NULL) request->on_reply(request, index, reply);
    if (is_broken(conn)) return;
    if (pipeline_at(&conn->pipeline, 0)->left == 0) {
        request = pipeline_pop(&conn->pipeline).request; /* NULL: abandoned by now */
        count_owed(conn, -1);
        end_request(request, DLOCK_OK, "");
    }
    bool is_told = conn->owner.on_answered != NULL && !is_broken(conn);
    if (is_told) conn->owner.on_answered(conn->owner.arg, conn);
}

/* How long a reply to the oldest request may be; 0: there is no request. */
static size_t reply_limit(connection *conn) {
    return conn->pipeline.count > 0 ? pipeline_at(&conn->pipeline, 0)->reply_bytes_max : 0;
}

/* The result is how many bytes were used. */
static size_t take_replies(connection *conn, const char *data, size_t size) {
    size_t used = 0;
    while (used < size && !is_broken(conn)) {
        const reply *reply;
        size_t length = size - used, limit = reply_limit(conn);
        resp_result result = resp_read(&conn->reader, data + used, length, &reply, &length);
        bool is_surplus = limit == 0 && result == RESP_REPLY; /* see take_reply() */
        bool is_long = length > limit && !is_surplus;
        if (result == RESP_INCOMPLETE && !is_long) break;
        if (result == RESP_MALFORMED)
            connection_fail(conn, DLOCK_PROTOCOL, "the server does not speak the Redis protocol");
        else if (result == RESP_NO_MEMORY)
            connection_fail(conn, DLOCK_NO_MEMORY, "no memory");
        else if (result == RESP_TOO_LONG || is_long)
            connection_fail(conn, DLOCK_PROTOCOL, "the server sends a reply that is too long");
        else
            take_reply(conn, reply);
        used += length;
    }
    return used;
}

static void take_bytes(connection *conn, const char *data, size_t size) {
    bytes *in = &conn->in;
    if (in->size > 0) { /* rare: usually whole replies come, which need not be copied */
        bool is_kept = bytes_append(in, data, size);
        if (!is_kept) connection_fail(conn, DLOCK_NO_MEMORY, "no memory");
        bytes_remove(in, 0, take_replies(conn, in->data, in->size));
    } else {
        size_t used = take_replies(conn, data, size);
        if (is_broken(conn)) return;
        if (!bytes_append(in, data + used, size - used))
            connection_fail(conn, DLOCK_NO_MEMORY, "no memory");
    }
}

/* A peer that ends the connection is read to the end. TLS keeps no bytes back from a read of the
 * size of a record, so what is left is in the socket. */
static void on_socket_ready(loop_io *io, uint32_t ready) {
    connection *conn = container_of(io, connection, io);
    bool is_readable = (ready & ~(uint32_t)EPOLLOUT) != 0 || conn->tls != NULL;
    bool reads_all = (ready & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0 || conn->tls != NULL;
    char data[READ_SIZE];
    bool has_more = is_readable;
    for (int reads = 0; has_more && reads < READS_PER_TURN; reads++) {
        ssize_t count = read_socket(conn, data, sizeof(data));
        if (count > 0) take_bytes(conn, data, (size_t)count);
        has_more = is_open(conn) && (count == sizeof(data) || (count > 0 && reads_all));
    }
    if (has_more) loop_tell_again(conn->loop, &conn->io);
    flush_output(conn);
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
        flush_output(conn);
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

static void on_greeting(request *greeting, int index, const reply *reply) {
    connection *conn = container_of(greeting, connection, greeting);
    const url *url = &conn->endpoint->url;
    bool is_role = url->must_be_master && index == (url->password[0] != '\0') + (url->db != 0);
    const struct reply *role = is_role ? reply_element(reply, 0) : NULL;
    if (reply->kind == REPLY_ERROR) {
        fail_by_error(conn, reply);
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
        fail_by_error(container_of(ping, connection, greeting), reply);
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
    loop_clear_timer(conn->loop, &conn->timer);
    conn->timer.on_due = on_reply_overdue;
    conn->io.on_ready = on_socket_ready;
    conn->io.take_output = take_output;
    conn->io.on_written = on_output_written;
    if (!connection_watch(conn, EPOLLIN)) return;
    conn->phase = GREETING;
    if (conn->pipeline.rest.size == 0)
        become_ready(conn);
    else
        flush_output(conn);
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
