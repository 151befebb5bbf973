/* SPDX-License-Identifier: BSD-3-Clause */
/* connection_state.h - what connection.c, connecting.c and server.c share. No other file includes
 * it. */
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

/* In connection.c. The socket is connected and the TLS handshake done: begins the greeting. */
void connection_on_open(connection *conn);
/* False: the connection has failed. */
bool connection_watch(connection *conn, uint32_t events);

/* In connecting.c: connects, until connection_on_open() is called or the connection fails. */
void connection_connect(connection *conn);
