/* SPDX-License-Identifier: BSD-3-Clause */
/* stream.h - bytes to and from a server: look up its name, try its addresses one after the other,
 * shake hands if there is TLS. All functions: locked (loop.h). */
#ifndef DLOCK_NET_STREAM_H
#define DLOCK_NET_STREAM_H

#include "dlock.h"
#include "net/loop.h"
#include "net/resolve.h"
#include "net/tls.h"
#include "net/url.h"

enum { CAUSE_SIZE = 256 };

/* How to reach a server, and how long things may take. Borrowed: outlives its streams. */
typedef struct endpoint {
    url url;
    const tls_context *tls; /* NULL: no TLS */
    addresses known;        /* of a literal address or a path; count 0: look the name up */
    lookup *last_lookup;
    uint32_t connect_timeout_ms, io_timeout_ms;
    atomic_uint_least64_t *command_count; /* commands sent, of the whole client */
} endpoint;

typedef struct stream stream;

/* Inside its owner. {0} but for the first group. */
struct stream {
    loop *loop;
    endpoint *endpoint;
    void (*on_open)(stream *stream);
    /* Read, to the end if is_ending, and write what is to be written. */
    void (*on_ready)(stream *stream, bool is_readable, bool is_ending);
    void (*on_failed)(stream *stream, dlock_status failure, const char *cause);
    loop_bytes_fn on_bytes;                             /* see stream_expect() */
    bool (*on_take_output)(loop_io *io, bytes *output); /* see loop_write(); not with TLS */
    void (*on_written)(loop_io *io, bytes *output, ssize_t count, int fault);

    /* Of stream.c. */
    enum { STREAM_OPENING, STREAM_HANDSHAKE, STREAM_OPEN, STREAM_ENDED } phase;
    loop_io io;
    loop_io lookup_io; /* readable: the look-up has a result */
    lookup *lookup;
    const addresses *found;
    int next_address;
    loop_timer timer; /* the next address is tried, or the stream fails */
    loop_task task;   /* begins to connect */
    int64_t connect_by_us;
    tls *tls;
    bool may_read_briefly;
};

/* Begins to connect. on_open or on_failed follow, later. */
void stream_open(stream *stream);
/* No callback follows. To be called after on_failed as well. */
void stream_close(stream *stream);
/* What has not happened yet while the stream is not open, for people. */
const char *stream_overdue(const stream *stream);

/* As recv(2) and send(2) without waiting: -1 with errno EAGAIN: later. Other failures, and 0, end
 * the stream, by on_failed. */
ssize_t stream_read(stream *stream, char *bytes, size_t size);
ssize_t stream_write(stream *stream, const char *bytes, size_t size);
/* The same for the result of a recv(2) or send(2) of the loop. False: there are no bytes. */
bool stream_settle(stream *stream, ssize_t count, int fault);

/* Is there something left to write? */
void stream_want_write(stream *stream, bool is_wanted);
/* A reply is expected, or none any more: see loop_expect(). */
void stream_expect(stream *stream, bool is_expected);

/* The peer has neither closed it nor sent anything. */
bool stream_is_quiet(stream *stream);

#endif
