/* SPDX-License-Identifier: BSD-3-Clause */
/* server_query.h - reads locks and statistics of one server. Nothing is changed there. */
#pragma once
#include "deployment/deployment.h"

/* A query, to one server after the other: the wanted, the functions to tell, and the result. */
typedef struct query {
    deployment *deployment;
    int64_t limit_us;              /* no request is sent later; replies have an I/O timeout more */
    const char *name;              /* of query_lock(): with the prefix */
    const char *pattern;           /* of query_locks(): with the prefix */
    size_t prefix_length;          /* names are told without the prefix */
    dlock_list_fn tell;            /* of the first two */
    dlock_info_fn tell_field;      /* of query_info() */
    dlock_waiting_fn tell_waiting; /* of query_waiters() */
    uint32_t waiters_max;          /* likewise */
    bool is_alone; /* there is one server: a redirect means that the URL is not of a cluster */
    void *arg;
    bool is_found;                /* something was told */
    bool is_enough;               /* the program does not want more */
    char cause[DLOCK_CAUSE_SIZE]; /* of the last failure; names the server */
} query;

/* Each waits for the server and tells in the thread of the caller. Not locked. */
typedef dlock_status (*query_fn)(query *query, server *server);
dlock_status query_lock(query *query, server *server);
/* The lock of a server without the module. */
dlock_status query_string(query *query, server *server);
dlock_status query_waiters(query *query, server *server);
dlock_status query_locks(query *query, server *server);
dlock_status query_info(query *query, server *server);
