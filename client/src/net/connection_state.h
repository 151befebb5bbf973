/* SPDX-License-Identifier: BSD-3-Clause */
/* connection_state.h - what connection.c, connecting.c, connection_io.c, pipeline.c and server.c
 * share. No other file includes it. */
#pragma once
#include "net/connection.h"

/* -- the pipeline: requests that are queued or in flight on a connection, in the order of their
 * bytes, and the bytes that are still to be sent. Pure: sends nothing. */

/* One request. */
typedef struct entry {
    request *request; /* NULL: nobody wants the replies */
    int replies, left;
    size_t size;     /* bytes of its commands in out */
    int64_t sent_us; /* 0: not yet */
    size_t reply_bytes_max;
    bool is_removed; /* abandoned before it was sent: see pipeline_compact() */
} entry;

/* All zero: empty. */
typedef struct pipeline {
    entry *entries; /* a ring */
    size_t capacity, first, count;
    uint64_t first_sequence; /* of the first entry */
    size_t marked;           /* how many entries have a sent_us */
    size_t removed;          /* how many of the others are not to be sent */
    bytes out;               /* queued: the commands of the other entries */
    /* Goes out before that: the greeting, or what was taken to be sent when the kernel had no
     * room. Empty: memory for the next out. */
    bytes rest;
} pipeline;

void pipeline_free(pipeline *pipeline);

/* Appends the commands, and sets request->sequence. False: no memory, nothing changed. */
bool pipeline_add(pipeline *pipeline, const command commands[], int count, request *request);

entry *pipeline_at(pipeline *pipeline, size_t index);
entry pipeline_pop(pipeline *pipeline);

/* Nobody wants the replies to this request any more. False: nothing was taken to be sent, and
 * nothing will be. */
bool pipeline_abandon(pipeline *pipeline, const request *request);
/* Entries that were abandoned before they were sent go, with their bytes. */
void pipeline_compact(pipeline *pipeline);

/* Takes bytes to be sent: the rest, else, unless it is the time of the greeting, all that are
 * queued. Their requests are marked as sent; the result is how many commands these are.
 * output->size 0: there is nothing to send. */
unsigned pipeline_take(pipeline *pipeline, bool is_greeting, int64_t now_us, bytes *output);
/* Gives the memory back; bytes from written on are the rest. */
void pipeline_put_back(pipeline *pipeline, bytes *output, size_t written);

/* -- the connection */

typedef enum phase { OPENING, CONNECTING, HANDSHAKE, GREETING, READY, BROKEN, CLOSED } phase;

/* Private to connecting.c. */
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
    pipeline pipeline;
    bytes in; /* the beginning of a reply */
    resp_reader reader;
    int64_t heard_us; /* the last sign of life: when it became ready, or gave a reply */
    bool is_stalled, is_writing;
    dlock_status failure;
    char cause[CAUSE_SIZE];
};

static inline void connection_count_owed(const connection *conn, ptrdiff_t change) {
    if (!conn->owner.is_parked) loop_count_owed(conn->loop, change);
}

/* Bytes can go out and come in. */
static inline bool connection_is_open(const connection *conn) {
    return conn->phase == GREETING || conn->phase == READY;
}

/* Broken or closed: nothing is sent or read any more. */
static inline bool connection_is_broken(const connection *conn) {
    return conn->phase == BROKEN || conn->phase == CLOSED;
}

/* -- in connection.c */

/* The socket is connected and the TLS handshake done: begins the greeting. */
void connection_on_open(connection *conn);
/* Breaks the connection with the status that the error reply means. */
void connection_fail_by_error(connection *conn, const reply *error);
/* Tells a request that no reply follows. NULL: does nothing. */
void connection_end_request(request *request, dlock_status status, const char *cause);

/* In connecting.c: connects, until connection_on_open() is called or the connection fails. */
void connection_connect(connection *conn);

/* -- in connection_io.c */

/* False: the connection has failed. */
bool connection_watch(connection *conn, uint32_t events);
/* Like send(2) without waiting. The connection fails if bytes cannot be sent any more. */
ssize_t connection_write(connection *conn, const char *data, size_t size);
/* Queues or, with TLS, sends the bytes of the pipeline. */
void connection_flush(connection *conn);
/* Callbacks of the loop. */
void connection_on_ready(loop_io *io, uint32_t ready);
bool connection_on_take_output(loop_io *io, bytes *output);
void connection_on_written(loop_io *io, bytes *output, ssize_t count, int fault);
void connection_on_overdue(loop_timer *timer);
