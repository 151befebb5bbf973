/* SPDX-License-Identifier: BSD-3-Clause */
/* server_state.h - what server.c and own_connection.c share. No other file includes it. */
#ifndef DLOCK_NET_SERVER_STATE_H
#define DLOCK_NET_SERVER_STATE_H

#include "net/breaker.h"
#include "net/server.h"

struct own_connection {
    list_node node; /* in used or kept of its server */
    server *server;
    connection *conn; /* NULL: it has broken */
    bool is_parked, is_kept;
    int64_t kept_until_us;
    void (*on_broken)(void *arg);
    void *broken_arg;
    void (*on_doubt)(void *arg);
    void *doubt_arg;
};

struct server {
    size_t shares;
    server_options options;
    endpoint endpoint;
    char name[CAUSE_SIZE];
    connection *command, *draining; /* NULL: none */
    list used, kept;                /* own_connection */
    size_t kept_count, parked_count;
    breaker breaker;
    loop_timer probe_timer, kept_timer;
    list refused; /* requests for which there was no memory to connect */
    loop_task refuse_task;
};

/* -- own_connection.c */

void own_connections_init(server *server);
/* Closes those that are kept, and stops the timers. None is in use. */
void own_connections_close(server *server);
/* The server gives no sign of life: tells all that are parked. The server may be gone
 * afterwards. */
void own_connections_doubt(server *server);

#endif
