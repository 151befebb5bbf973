/* SPDX-License-Identifier: BSD-3-Clause */
/* connection_state.h - what connection.c, connection_life.c and server.c share. No other file
 * includes it. */
#pragma once
#include "net/connection.h"

/* -- the pipeline: requests that are queued or in flight on a connection, in the order of their
 * bytes, and the bytes that are still to be sent. */

/* One request. */
typedef struct entry {
    request *request; /* NULL: nobody wants the replies */
    int replies, left;
    size_t size;     /* bytes of its commands in out */
    int64_t sent_us; /* 0: not yet */
    size_t reply_bytes_max;
    bool is_removed; /* abandoned before it was sent */
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

/* -- the connection */

typedef enum phase { OPENING, CONNECTING, HANDSHAKE, GREETING, READY, BROKEN, CLOSED } phase;

/* Private to connection_life.c. */
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
    bool is_stalled;
    dlock_status failure;
    char cause[CAUSE_SIZE];
};

/* Bytes can go out and come in. */
static inline bool connection_is_open(const connection *conn) {
    return conn->phase == GREETING || conn->phase == READY;
}

/* Broken or closed: nothing is sent or read any more. */
static inline bool connection_is_over(const connection *conn) {
    return conn->phase >= BROKEN;
}

/* -- in connection.c, for connection_life.c */

/* connection_send() of what goes out before all that is queued. The first of all requests. */
bool connection_send_first(connection *conn, const command commands[], int count, request *request);
/* The socket is connected and the TLS handshake done: reads and sends from now on. False: the
 * connection has failed. */
bool connection_start_io(connection *conn);
/* False: the connection has failed. */
bool connection_watch(connection *conn, uint32_t events);
/* Sends what may be sent, with the next release of the mutex at the latest. */
void connection_flush(connection *conn);
/* Sends all that is queued if the kernel takes it now. */
void connection_send_last(connection *conn);
/* No reply follows. is_told: on_done() says so, as conn->failure and conn->cause. */
void connection_end_requests(connection *conn, bool is_told);
/* No reply is owed any more. */
void connection_count_none_owed(connection *conn);
/* Breaks the connection with the status that the error reply means. */
void connection_fail_by_error(connection *conn, const reply *error);
