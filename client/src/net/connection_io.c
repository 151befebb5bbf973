/* SPDX-License-Identifier: BSD-3-Clause */
/* connection_io.c - the bytes of a connection, see connection.h.
 *
 *   out   what is queued goes out together, without the mutex (loop_write()); with TLS, locked.
 *         While a thread sends, others only queue; that thread sends their bytes next
 *   in    whole replies are given to the requests in order; the beginning of one is kept
 *   stall the oldest request has been unanswered for an I/O timeout, and nothing else was heard */
#include "net/connection_state.h"

#include "base/deadline.h"

enum { READ_SIZE = 16384 };

/* -- writing */

/* The oldest request has been unanswered since then; 0: there is none. */
static int64_t unanswered_since_us(connection *conn) {
    if (conn->pipeline.marked == 0) return 0;
    int64_t sent_us = pipeline_at(&conn->pipeline, 0)->sent_us;
    return sent_us > conn->heard_us ? sent_us : conn->heard_us;
}

static void watch_for_stall(connection *conn) {
    int64_t since_us = unanswered_since_us(conn);
    bool is_watched = conn->owner.on_stalled != NULL && !conn->is_stalled && since_us != 0;
    if (!is_watched || conn->stall_timer.node.is_queued) return;
    loop_set_timer(conn->stream.loop, &conn->stall_timer,
                   deadline_after_ms(since_us, conn->stream.endpoint->io_timeout_ms));
}

void connection_on_stall_timer(loop_timer *timer) {
    connection *conn = container_of(timer, connection, stall_timer);
    int64_t since_us = unanswered_since_us(conn), now_us = loop_now_us(conn->stream.loop);
    if (since_us == 0) return;
    if (now_us < deadline_after_ms(since_us, conn->stream.endpoint->io_timeout_ms)) {
        watch_for_stall(conn);
        return;
    }
    conn->is_stalled = true;
    conn->owner.on_stalled(conn->owner.arg, conn);
}

static bool take_output(connection *conn, bytes *output) {
    bool is_open = conn->phase == READY || conn->phase == GREETING;
    if (!is_open || conn->is_writing || conn->stream.phase != STREAM_OPEN) return false;
    size_t limit = conn->phase == READY ? conn->pipeline.out.size : conn->greeting_size;
    unsigned commands =
        pipeline_take(&conn->pipeline, limit, loop_now_us(conn->stream.loop), output);
    if (output->size == 0) return false;
    if (conn->phase == GREETING)
        conn->greeting_size = 0;
    else if (commands > 0)
        atomic_fetch_add_explicit(conn->stream.endpoint->command_count, commands,
                                  memory_order_relaxed);
    conn->is_writing = true;
    stream_expect(&conn->stream, true);
    watch_for_stall(conn);
    return true;
}

/* count: bytes that were sent; less than all if the kernel has no room. True: more can be sent, if
 * more was queued meanwhile. */
static bool note_written(connection *conn, bytes *output, ssize_t count) {
    size_t written = count > 0 ? (size_t)count : 0;
    bool is_full = written < output->size;
    conn->is_writing = false;
    pipeline_put_back(&conn->pipeline, output, written);
    if (conn->stream.phase != STREAM_OPEN) return false; /* on_failed follows */
    stream_want_write(&conn->stream, is_full);
    if (is_full) stream_expect(&conn->stream, false); /* a brief read would not notice the room */
    return !is_full;
}

/* TLS takes one record at a time. The result is how many bytes were sent. */
static ssize_t write_records(connection *conn, const bytes *output) {
    size_t written = 0;
    while (written < output->size) {
        ssize_t count = stream_write(&conn->stream, output->data + written, output->size - written);
        if (count <= 0) break;
        written += (size_t)count;
    }
    return (ssize_t)written;
}

void connection_flush(connection *conn) {
    bytes output;
    if (conn->stream.phase != STREAM_OPEN) return; /* the stream sets its loop_io anew until then */
    if (conn->stream.tls == NULL) {
        loop_write(conn->stream.loop, &conn->stream.io);
        return;
    }
    while (take_output(conn, &output))
        if (!note_written(conn, &output, write_records(conn, &output))) return;
}

bool connection_on_take_output(loop_io *io, bytes *output) {
    stream *stream = container_of(io, struct stream, io);
    return take_output(container_of(stream, connection, stream), output);
}

void connection_on_written(loop_io *io, bytes *output, ssize_t count, int fault) {
    stream *stream = container_of(io, struct stream, io);
    connection *conn = container_of(stream, connection, stream);
    stream_settle(stream, count, fault);
    if (note_written(conn, output, count)) connection_flush(conn);
}

/* -- reading */

static void take_reply(connection *conn, const reply *reply) {
    if (conn->pipeline.marked == 0) {
        connection_fail(conn, DLOCK_PROTOCOL, "a reply that no request asked for");
        return;
    }
    conn->heard_us = loop_now_us(conn->stream.loop);
    entry *first = pipeline_at(&conn->pipeline, 0);
    int index = first->replies - first->left--;
    request *request = first->request;
    if (request != NULL && request->on_reply != NULL) request->on_reply(request, index, reply);
    if (connection_is_broken(conn)) return;
    if (pipeline_at(&conn->pipeline, 0)->left == 0) {
        request = pipeline_pop(&conn->pipeline).request; /* NULL: abandoned by now */
        if (request != NULL) request->conn = NULL;
        if (request != NULL) request->on_done(request, DLOCK_OK, "");
    }
    bool is_told = conn->owner.on_answered != NULL && !connection_is_broken(conn);
    if (is_told) conn->owner.on_answered(conn->owner.arg, conn);
}

/* How long a reply to the oldest request may be. */
static size_t reply_limit(connection *conn) {
    return conn->pipeline.count > 0 ? pipeline_at(&conn->pipeline, 0)->reply_bytes_max : 0;
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
        else if (is_long)
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
    if (conn->pipeline.count == 0) stream_expect(&conn->stream, false);
}

void connection_on_bytes(loop_io *io, const char *data, ssize_t count, int fault) {
    stream *stream = container_of(io, struct stream, io);
    connection *conn = container_of(stream, connection, stream);
    if (stream_settle(stream, count, fault)) take_bytes(conn, data, (size_t)count);
}

void connection_on_ready(stream *stream, bool is_readable, bool is_ending) {
    connection *conn = container_of(stream, connection, stream);
    char data[READ_SIZE];
    ssize_t count = 0;
    do {
        count = is_readable ? stream_read(stream, data, sizeof(data)) : 0;
        if (count > 0) take_bytes(conn, data, (size_t)count);
    } while (conn->stream.phase == STREAM_OPEN &&
             (count == sizeof(data) || (count > 0 && (is_ending || stream->tls != NULL))));
    if (conn->stream.phase == STREAM_OPEN) connection_flush(conn);
}
