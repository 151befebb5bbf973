/* SPDX-License-Identifier: BSD-3-Clause */
/* connection_state.h - what connection.c and connection_io.c share. No other file includes it. */
#ifndef DLOCK_NET_CONNECTION_STATE_H
#define DLOCK_NET_CONNECTION_STATE_H

#include "net/pipeline.h"

typedef enum phase { OPENING, GREETING, READY, BROKEN, CLOSED } phase;

struct connection {
    stream stream;
    connection_owner owner;
    phase phase;
    request greeting;
    pipeline pipeline;
    size_t greeting_size; /* bytes of the greeting that are not yet sent */
    bytes in;             /* the beginning of a reply */
    resp_reader reader;
    loop_timer stall_timer;
    loop_task task;
    int64_t heard_us;
    bool is_stalled, is_writing;
    dlock_status failure;
    char cause[CAUSE_SIZE];
};

/* Of connection_io.c: sends what is queued, and callbacks of the stream and the loop. */
void connection_flush(connection *conn);
void connection_on_ready(stream *stream, bool is_readable, bool is_ending);
void connection_on_bytes(loop_io *io, const char *data, ssize_t count, int fault);
bool connection_on_take_output(loop_io *io, bytes *output);
void connection_on_written(loop_io *io, bytes *output, ssize_t count, int fault);
void connection_on_stall_timer(loop_timer *timer);

#endif
