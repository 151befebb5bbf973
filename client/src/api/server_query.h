/* SPDX-License-Identifier: BSD-3-Clause */
/* server_query.h - reads locks and statistics of servers. Nothing is changed there. */
#pragma once
#include "deployment/deployment.h"

/* A query to several servers: what is wanted, the functions to tell, and the result. */
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
    bool is_majority_enough;
    char *why; /* for people; NULL: not wanted */
    size_t why_size;
    void *arg;
    bool is_found;                /* something was told */
    bool is_enough;               /* the program does not want more */
    char cause[DLOCK_CAUSE_SIZE]; /* of the last failure; names the server */
} query;

enum { QUERY_COMMANDS_MAX = 2 };

/* A kind of query: the first request to each server, and how the replies are told. */
typedef struct query_kind {
    /* The first request to a server. The result is the number of commands. */
    int (*ask)(const query *query, command commands[QUERY_COMMANDS_MAX]);
    /* Tells of the replies, in the thread of the caller; may ask the server for more, and wait. */
    dlock_status (*take)(query *query, server *server, reply *const replies[]);
} query_kind;

extern const query_kind query_lock;
extern const query_kind query_string; /* the lock of a server without the module */
extern const query_kind query_waiters;
extern const query_kind query_locks;
extern const query_kind query_info;

/* Asks all servers at once, so that a server that does not answer takes no time from the others,
 * and tells of each as it replies. The first failure is the result, and query->cause says why. With
 * is_majority_enough, all servers are waited for, a majority of replies is DLOCK_OK, and why gets a
 * line for each failure. Not locked, in the thread of the caller. */
dlock_status query_all(query *query, const query_kind *kind, const server_list *list);
