/* SPDX-License-Identifier: BSD-3-Clause */
/* server_state.h - what server.c and own_connection.c share. No other file includes it. */
#ifndef DLOCK_NET_SERVER_STATE_H
#define DLOCK_NET_SERVER_STATE_H

#include "net/breaker.h"
#include "net/server.h"

struct server {
    size_t shares;
    server_options options;
    endpoint endpoint;
    char name[CAUSE_SIZE];
    connection *command, *draining; /* NULL: none */
    list parked, kept;              /* own_connection */
    size_t kept_count;
    breaker breaker;
    loop_timer probe_timer;
};

/* -- own_connection.c */

void own_connections_init(server *server);
/* Closes those that are kept. None is in use. */
void own_connections_close(server *server);
/* The server gives no sign of life: all that are parked are told, later. */
void own_connections_doubt(server *server);

#endif
