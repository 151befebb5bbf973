/* SPDX-License-Identifier: BSD-3-Clause */
/* connection_state.h - what connection.c, connecting.c and connection_io.c share. No other file
 * includes it. */
#pragma once

#include "net/pipeline.h"

typedef enum phase { OPENING, CONNECTING, HANDSHAKE, GREETING, READY, BROKEN, CLOSED } phase;

/* Of connecting.c. */
typedef struct connecting {
    loop_io lookup_io; /* readable: the look-up has a result */
    lookup *lookup;
    const addresses *found;
    int next_address;
    int64_t until_us;
} connecting;

struct connection {
    loop *loop;
    endpoint *endpoint;
    connection_owner owner;
    phase phase;
    connecting connecting;
    loop_io io;
    tls *tls;
    loop_timer timer; /* connecting: an address has had its time. Then: a reply is overdue */
    loop_task task;
    request greeting;
    size_t greeting_size; /* bytes of the greeting that are not yet sent */
    pipeline pipeline;
    bytes in; /* the beginning of a reply */
    resp_reader reader;
    int64_t heard_us;
    bool is_stalled, is_writing;
    dlock_status failure;
    char cause[CAUSE_SIZE];
};

/* Bytes can go out and come in. */
static inline bool connection_is_open(const connection *conn) {
    return conn->phase == GREETING || conn->phase == READY;
}

/* Of connection.c: begins the greeting. */
void connection_on_open(connection *conn);

/* Of connecting.c: from OPENING to connection_on_open(), or the connection fails. */
void connection_connect(connection *conn);

/* Of connection_io.c. The first two end the connection if they fail; connection_write() is like
 * send(2) without waiting. */
bool connection_watch(connection *conn, uint32_t events);
ssize_t connection_write(connection *conn, const char *data, size_t size);
void connection_flush(connection *conn); /* sends what is queued */
void connection_on_ready(connection *conn, uint32_t ready);
bool connection_on_take_output(loop_io *io, bytes *output);
void connection_on_bytes(loop_io *io, const char *data, ssize_t count, int fault);
void connection_on_written(loop_io *io, bytes *output, ssize_t count, int fault);
void connection_on_overdue(loop_timer *timer);
