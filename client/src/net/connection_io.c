/* SPDX-License-Identifier: BSD-3-Clause */
/* connection_io.c - the bytes of a connection, see connection.h.
 *
 *   send    a thread takes the queued bytes of the pipeline and sends them without the mutex
 *           (loop_write()), or with the mutex if there is TLS. While it sends, other threads only
 *           queue bytes, which that thread sends next
 *   read    whole replies are given to the requests in order; the beginning of a reply is kept
 *   stall   the oldest request has had no reply for an I/O timeout, nor has any other request */
#include "net/connection_state.h"

#include <errno.h>
#include <sys/epoll.h>

/* In one turn of the loop, which has the mutex: a server that floods the connection must not keep
 * the calls of other threads waiting. */
enum { READ_SIZE = 16384, READS_PER_TURN = 8 };

/* -- the socket */

/* Judges the result of a recv(2) or send(2) without waiting. False: no bytes were moved; if none
 * ever will be, the connection fails. */
static bool check_socket(connection *conn, ssize_t count, int fault) {
    bool is_temporary = fault == EAGAIN || fault == EWOULDBLOCK || fault == EINTR;
    if (count == 0)
        connection_fail(conn, DLOCK_UNREACHABLE, "the server closed the connection");
    else if (count < 0 && !is_temporary && conn->tls != NULL)
        connection_fail(conn, conn->tls->failure, conn->tls->cause);
    else if (count < 0 && !is_temporary)
        connection_fail(conn, DLOCK_UNREACHABLE, strerror(fault));
    return count > 0;
}

static ssize_t read_socket(connection *conn, char *data, size_t size) {
    ssize_t count =
        conn->tls != NULL ? tls_read(conn->tls, data, size) : recv(conn->io.fd, data, size, 0);
    check_socket(conn, count, errno);
    return count;
}

ssize_t connection_write(connection *conn, const char *data, size_t size) {
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

/* -- writing */

/* When the oldest request will have been unanswered for an I/O timeout. DEADLINE_NEVER: there is
 * none, or the owner does not want to know or was told. */
static int64_t stalled_at_us(connection *conn) {
    bool is_wanted = conn->owner.on_stalled != NULL && !conn->is_stalled;
    if (!is_wanted || conn->pipeline.marked == 0) return DEADLINE_NEVER;
    int64_t sent_us = pipeline_at(&conn->pipeline, 0)->sent_us;
    return deadline_after_ms(sent_us > conn->heard_us ? sent_us : conn->heard_us,
                             conn->endpoint->options.io_timeout_ms);
}

void connection_on_overdue(loop_timer *timer) {
    connection *conn = container_of(timer, connection, timer);
    int64_t due_us = stalled_at_us(conn);
    if (loop_now_us(conn->loop) < due_us) {
        loop_set_timer(conn->loop, timer, due_us);
        return;
    }
    conn->is_stalled = true;
    conn->owner.on_stalled(conn->owner.arg, conn);
}

bool connection_on_take_output(loop_io *io, bytes *output) {
    connection *conn = container_of(io, connection, io);
    if (!connection_is_open(conn) || conn->is_writing) return false;
    size_t marked = conn->pipeline.marked;
    bool is_greeting = conn->phase == GREETING;
    unsigned commands =
        pipeline_take(&conn->pipeline, is_greeting, loop_now_us(conn->loop), output);
    if (output->size == 0) return false;
    connection_count_owed(conn, (ptrdiff_t)(conn->pipeline.marked - marked));
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
    pipeline_put_back(&conn->pipeline, output, written);
    if (connection_is_broken(conn)) return false;
    bool is_tls_full = conn->tls != NULL && conn->tls->wants_to_write;
    connection_watch(conn, is_full || is_tls_full ? EPOLLIN | EPOLLOUT : EPOLLIN);
    return !is_full;
}

/* TLS takes one record at a time. The result is how many bytes were sent. */
static ssize_t write_records(connection *conn, const bytes *output) {
    size_t written = 0;
    while (written < output->size) {
        ssize_t count = connection_write(conn, output->data + written, output->size - written);
        if (count <= 0) break;
        written += (size_t)count;
    }
    return (ssize_t)written;
}

void connection_flush(connection *conn) {
    bytes output;
    if (!connection_is_open(conn)) return; /* connecting.c sets the loop_io anew until then */
    if (conn->tls == NULL) {
        bool has_output = conn->pipeline.rest.size > 0 || conn->pipeline.out.size > 0;
        if (has_output) loop_write(conn->loop, &conn->io, conn->pipeline.count);
        return;
    }
    while (connection_on_take_output(&conn->io, &output))
        if (!note_written(conn, &output, write_records(conn, &output))) return;
}

void connection_on_written(loop_io *io, bytes *output, ssize_t count, int fault) {
    connection *conn = container_of(io, connection, io);
    check_socket(conn, count, fault);
    if (note_written(conn, output, count)) connection_flush(conn);
}

/* -- reading */

static void take_reply(connection *conn, const reply *reply) {
    bool (*on_push)(void *arg, const struct reply *reply) = conn->owner.on_push;
    if (conn->pipeline.marked == 0) {
        bool is_taken = on_push != NULL && on_push(conn->owner.arg, reply);
        if (is_taken || connection_is_broken(conn)) return;
        if (reply->kind == REPLY_ERROR) /* the server has too many clients, for instance */
            connection_fail_by_error(conn, reply);
        else
            connection_fail(conn, DLOCK_PROTOCOL, "a reply that no request asked for");
        return;
    }
    conn->heard_us = loop_now_us(conn->loop);
    entry *first = pipeline_at(&conn->pipeline, 0);
    int index = first->replies - first->left--;
    request *request = first->request;
    if (request != NULL && request->on_reply != NULL) request->on_reply(request, index, reply);
    if (connection_is_broken(conn)) return;
    if (pipeline_at(&conn->pipeline, 0)->left == 0) {
        request = pipeline_pop(&conn->pipeline).request; /* NULL: abandoned by now */
        connection_count_owed(conn, -1);
        connection_end_request(request, DLOCK_OK, "");
    }
    bool is_told = conn->owner.on_answered != NULL && !connection_is_broken(conn);
    if (is_told) conn->owner.on_answered(conn->owner.arg, conn);
}

/* How long a reply to the oldest request may be. */
static size_t reply_limit(connection *conn) {
    if (conn->pipeline.count > 0) return pipeline_at(&conn->pipeline, 0)->reply_bytes_max;
    return conn->owner.on_push != NULL ? REPLY_BYTES_MAX : 0;
}

/* The result is how many bytes were used. */
static size_t take_replies(connection *conn, const char *data, size_t size) {
    size_t used = 0;
    while (used < size && !connection_is_broken(conn)) {
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
        if (connection_is_broken(conn)) return;
        if (!bytes_append(in, data + used, size - used))
            connection_fail(conn, DLOCK_NO_MEMORY, "no memory");
    }
}

/* A peer that ends the connection is read to the end. TLS keeps no bytes back from a read of the
 * size of a record, so what is left is in the socket. */
void connection_on_ready(loop_io *io, uint32_t ready) {
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
