/* SPDX-License-Identifier: BSD-3-Clause */
/* connection.c - requests and replies on a connection: see connection.h. connection_life.c has the
 * beginning and the end of a connection.
 *
 *   pipeline   requests that are queued or in flight, and the bytes that are still to be sent. An
 *              entry that is abandoned before it is sent is removed together with others: one by
 *              one, thousands of requests that time out before there is a connection would take
 *              quadratic time
 *   sending    a thread takes the queued bytes and sends them without the mutex (loop_write()), or
 *              with the mutex if there is TLS. Bytes that other threads queue meanwhile are sent
 *              next, by the same thread. What the kernel did not take is the rest, which goes out
 *              first the next time
 *   reading    whole replies are given to the requests; the beginning of a reply is kept
 *   stall      the oldest request has had no reply for an I/O timeout, nor has any other request.
 *              A connection whose greeting stalls is of no use, and fails
 *
 * Invariants: a request under way has exactly one entry in the pipeline; an abandoned one leaves an
 * entry without a request (or none, if nothing was sent). Entries are in the order of their bytes.
 * The first entries, as many as marked says, are sent or are being sent. out has the bytes of the
 * entries behind them. Only such an unsent entry can be removed. A removed entry is never sent, and
 * stays in the pipeline until more than half of the unsent entries are removed ones. */
#include "net/connection_state.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>

/* In one turn of the loop, which has the mutex: a server that floods the connection must not keep
 * the calls of other threads waiting. */
enum { READ_SIZE = 16384, READS_PER_TURN = 8 };

enum { QUIET_US = 10000 };

/* -- the pipeline */

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
    bool has_limit = request != NULL && request->reply_bytes_max > 0;
    *pipeline_at(pipeline, pipeline->count) =
        (entry){.request = request,
                .replies = count,
                .left = count,
                .size = out->size - before,
                .reply_bytes_max = has_limit ? request->reply_bytes_max : REPLY_BYTES};
    if (request != NULL) request->sequence = pipeline->first_sequence + pipeline->count;
    pipeline->count++;
    return true;
}

/* All replies of the first entry have come, or none follows. */
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

/* Sends with the mutex: TLS takes one record at a time. The result is how many bytes were sent; the
 * connection fails if bytes cannot be sent any more. */
static ssize_t write_socket(connection *conn, const bytes *output) {
    size_t written = 0;
    while (written < output->size) {
        const char *data = output->data + written;
        size_t size = output->size - written;
        ssize_t count = conn->tls != NULL ? tls_write(conn->tls, data, size)
                                          : send(conn->io.fd, data, size, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) continue;
        check_socket(conn, count, errno);
        if (count <= 0) break;
        written += (size_t)count;
    }
    return (ssize_t)written;
}

bool connection_watch(connection *conn, uint32_t events) {
    if (loop_watch(conn->loop, &conn->io, events | EPOLLRDHUP | EPOLLET)) return true;
    connection_fail(conn, DLOCK_NO_MEMORY, "no memory or descriptor to watch a connection");
    return false;
}

/* -- sending */

/* When the oldest request will have been unanswered for an I/O timeout. DEADLINE_NEVER: there is
 * none, or the owner does not want to know or was told. */
static int64_t stalled_at_us(connection *conn) {
    bool is_told = conn->owner.on_stalled != NULL && !conn->is_stalled;
    bool is_wanted = is_told || conn->phase == GREETING;
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
    } else if (conn->phase == GREETING) {
        connection_fail(conn, DLOCK_UNREACHABLE, connection_overdue(conn));
    } else {
        conn->is_stalled = true;
        conn->owner.on_stalled(conn->owner.arg, conn);
    }
}

static void count_owed(const connection *conn, ptrdiff_t change) {
    if (!conn->owner.is_parked) loop_count_owed(conn->loop, change);
}

void connection_count_none_owed(connection *conn) {
    count_owed(conn, -(ptrdiff_t)conn->pipeline.marked);
}

/* The entries before end are about to be sent. The result is how many commands these are. */
static unsigned mark_sent(connection *conn, size_t end) {
    pipeline *pipeline = &conn->pipeline;
    int64_t now_us = loop_now_us(conn->loop);
    unsigned commands = 0;
    for (; pipeline->marked < end; pipeline->marked++) {
        entry *entry = pipeline_at(pipeline, pipeline->marked);
        request *request = entry->request;
        entry->sent_us = now_us;
        if (request != NULL) request->sent_us = now_us;
        if (request != NULL && request->on_sent != NULL) request->on_sent(request);
        count_owed(conn, 1);
        commands += (unsigned)entry->replies;
    }
    if (!heap_has(&conn->timer.node)) loop_set_timer(conn->loop, &conn->timer, stalled_at_us(conn));
    return commands;
}

/* Only the greeting may be sent before it is answered. */
static bool has_output(const connection *conn) {
    return conn->pipeline.rest.size > 0 || (conn->phase == READY && conn->pipeline.out.size > 0);
}

static bool take_output(loop_io *io, bytes *output) {
    connection *conn = container_of(io, connection, io);
    pipeline *pipeline = &conn->pipeline;
    if (!connection_is_open(conn) || !has_output(conn)) return false;
    if (pipeline->rest.size > 0) {
        *output = pipeline->rest;
        if (conn->phase == GREETING) mark_sent(conn, 1);
    } else {
        pipeline_compact(pipeline);
        if (pipeline->out.size == 0) return false; /* all of it was abandoned */
        *output = pipeline->out;
        pipeline->out = pipeline->rest;
        unsigned commands = mark_sent(conn, pipeline->count);
        atomic_fetch_add_explicit(conn->endpoint->options.command_count, commands,
                                  memory_order_relaxed);
    }
    pipeline->rest = (bytes){0};
    return true;
}

/* count: bytes that were sent; less than all if the kernel has no room. True: more can be sent, if
 * more was queued meanwhile. */
static bool note_written(connection *conn, bytes *output, ssize_t count) {
    size_t written = count > 0 ? (size_t)count : 0;
    bool is_full = written < output->size;
    bytes_remove(output, written);
    conn->pipeline.rest = *output;
    if (connection_is_over(conn)) return false;
    bool is_tls_full = conn->tls != NULL && conn->tls->wants_to_write;
    connection_watch(conn, is_full || is_tls_full ? EPOLLIN | EPOLLOUT : EPOLLIN);
    return !is_full;
}

void connection_flush(connection *conn) {
    bytes output;
    if (!connection_is_open(conn)) return; /* connection_life.c sets the loop_io until then */
    if (conn->tls == NULL) {
        if (has_output(conn)) loop_write(conn->loop, &conn->io, conn->pipeline.count);
        return;
    }
    while (take_output(&conn->io, &output))
        if (!note_written(conn, &output, write_socket(conn, &output))) return;
}

static void on_output_written(loop_io *io, bytes *output, ssize_t count, int fault) {
    connection *conn = container_of(io, connection, io);
    check_socket(conn, count, fault);
    if (note_written(conn, output, count)) connection_flush(conn);
}

void connection_send_last(connection *conn) {
    pipeline *pipeline = &conn->pipeline;
    pipeline_compact(pipeline);
    bool is_in_order =
        conn->phase == READY && !loop_is_sending(&conn->io) && pipeline->rest.size == 0;
    if (is_in_order) write_socket(conn, &pipeline->out);
}

/* -- reading */

/* request NULL: does nothing. */
static void end_request(request *request, dlock_status status, const char *cause) {
    if (request == NULL) return;
    request->conn = NULL;
    if (request->on_done != NULL) request->on_done(request, status, cause);
}

void connection_end_requests(connection *conn, bool is_told) {
    bool is_first = true;
    while (conn->pipeline.count > 0) {
        entry ended = pipeline_pop(&conn->pipeline);
        bool was_sent = ended.sent_us != 0;
        bool is_final = conn->failure == DLOCK_PROTOCOL ? is_first : conn->failure == DLOCK_REFUSED;
        is_first = false;
        if (is_told)
            end_request(ended.request, was_sent && !is_final ? DLOCK_IN_DOUBT : conn->failure,
                        conn->cause);
        else if (ended.request != NULL)
            ended.request->conn = NULL;
    }
}

void connection_fail_by_error(connection *conn, const reply *error) {
    char text[CAUSE_SIZE];
    reply_copy_text(error, text, sizeof(text));
    error_meaning meaning = error_reply_meaning(error);
    connection_fail(conn, meaning.is_transient ? DLOCK_UNREACHABLE : meaning.status, text);
}

/* No request was sent. The server has too many clients, for instance. */
static void refuse_surplus(connection *conn, const reply *reply) {
    if (reply->kind == REPLY_ERROR)
        connection_fail_by_error(conn, reply);
    else
        connection_fail(conn, DLOCK_PROTOCOL, "a reply that no request asked for");
}

/* The callbacks may abandon the request, or close the connection. */
static void take_reply(connection *conn, const reply *reply) {
    conn->heard_us = loop_now_us(conn->loop);
    entry *first = pipeline_at(&conn->pipeline, 0);
    int index = first->replies - first->left--;
    request *request = first->request;
    if (request != NULL && request->on_reply != NULL) request->on_reply(request, index, reply);
    if (connection_is_over(conn)) return;
    if (pipeline_at(&conn->pipeline, 0)->left == 0) {
        count_owed(conn, -1);
        end_request(pipeline_pop(&conn->pipeline).request, DLOCK_OK, "");
    }
    bool is_told = conn->owner.on_answered != NULL && !connection_is_over(conn);
    if (is_told) conn->owner.on_answered(conn->owner.arg, conn);
}

/* The result is how many bytes were used. */
static size_t take_replies(connection *conn, const char *data, size_t size) {
    pipeline *pipeline = &conn->pipeline;
    size_t used = 0;
    while (used < size && !connection_is_over(conn)) {
        const reply *reply;
        size_t length = size - used;
        resp_result result = resp_read(&conn->reader, data + used, length, &reply, &length);
        bool is_surplus = pipeline->marked == 0;
        size_t limit = pipeline->count > 0 ? pipeline_at(pipeline, 0)->reply_bytes_max : 0;
        bool is_long = length > limit && !(is_surplus && result == RESP_REPLY);
        if (result == RESP_INCOMPLETE && !is_long) break;
        if (result == RESP_MALFORMED)
            connection_fail(conn, DLOCK_PROTOCOL, "the server does not speak the Redis protocol");
        else if (result == RESP_NO_MEMORY)
            connection_fail(conn, DLOCK_NO_MEMORY, "no memory");
        else if (result == RESP_TOO_LONG || is_long)
            connection_fail(conn, DLOCK_PROTOCOL, "the server sends a reply that is too long");
        else if (is_surplus)
            refuse_surplus(conn, reply);
        else
            take_reply(conn, reply);
        used += length;
    }
    return used;
}

/* Usually whole replies come, which need not be copied. */
static void take_bytes(connection *conn, const char *data, size_t size) {
    bytes *in = &conn->in;
    bool is_kept = true;
    if (in->size > 0) {
        is_kept = bytes_append(in, data, size);
        if (is_kept) bytes_remove(in, take_replies(conn, in->data, in->size));
    } else {
        size_t used = take_replies(conn, data, size);
        if (!connection_is_over(conn)) is_kept = bytes_append(in, data + used, size - used);
    }
    if (!is_kept) connection_fail(conn, DLOCK_NO_MEMORY, "no memory");
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
        has_more = connection_is_open(conn) && (count == sizeof(data) || (count > 0 && reads_all));
    }
    if (has_more) loop_tell_again(conn->loop, &conn->io);
    connection_flush(conn);
}

bool connection_start_io(connection *conn) {
    conn->timer.on_due = on_reply_overdue;
    conn->io.on_ready = on_socket_ready;
    conn->io.take_output = take_output;
    conn->io.on_written = on_output_written;
    return connection_watch(conn, EPOLLIN);
}

/* -- requests */

bool connection_send(connection *conn, const command commands[], int count, request *request) {
    if (!pipeline_add(&conn->pipeline, commands, count, request)) return false;
    if (conn->phase != CLOSED) loop_defer(conn->loop, &conn->task);
    if (request == NULL) return true;
    request->sent_us = 0;
    request->conn = conn;
    return true;
}

bool connection_send_first(connection *conn, const command commands[], int count,
                           request *request) {
    pipeline *pipeline = &conn->pipeline;
    if (!connection_send(conn, commands, count, request)) return false;
    pipeline->rest = pipeline->out;
    pipeline->out = (bytes){0};
    pipeline_at(pipeline, 0)->size = 0;
    return true;
}

bool connection_abandon(request *request) {
    connection *conn = request->conn;
    if (conn == NULL) return request->sent_us != 0;
    pipeline *pipeline = &conn->pipeline;
    size_t index = (size_t)(request->sequence - pipeline->first_sequence);
    entry *abandoned = pipeline_at(pipeline, index);
    request->conn = NULL;
    abandoned->request = NULL;
    if (index < pipeline->marked) return true;
    abandoned->is_removed = true;
    pipeline->removed++;
    if (pipeline->removed * 2 > pipeline->count - pipeline->marked) pipeline_compact(pipeline);
    return false;
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
