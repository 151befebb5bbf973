/* SPDX-License-Identifier: BSD-3-Clause */
/* server.c - see server.h. */
#include "server.h"

#include "deadline.h"
#include "pool.h"
#include "resolve.h"
#include "text.h"
#include <stdlib.h>
#include <sys/un.h>

enum { WHERE_SIZE = CAUSE_MAX / 2 }; /* in a cause, so that there is room for the rest */

struct server {
    url at;
    server_limits limits;
    pool *connections;
};

/* The addresses of a server that are not tried yet. */
typedef struct dial {
    const url *at;
    const tls_context *trust;
    addresses found;
    int next;
} dial;

server *server_new(const url *at, const server_limits *limits) {
    server *made = calloc(1, sizeof(*made));
    if (made == NULL) return NULL;
    made->at = *at;
    made->limits = *limits;
    made->connections = pool_new(limits->pool_max);
    if (made->connections == NULL) {
        free(made);
        return NULL;
    }
    return made;
}

void server_free(server *old) {
    if (old == NULL) return;
    pool_free(old->connections);
    free(old);
}

static conn *connect_next(exchange *question) {
    dial *to = question->dial;
    if (to->next == to->found.count) return NULL;
    int chosen = to->next++;
    return conn_open(to->at, to->trust, (const struct sockaddr *)&to->found.each[chosen],
                     to->found.sizes[chosen]);
}

/* Finds out where to connect to. */
static dlock_status look_up(const server *at, dial *to, int64_t deadline_us, const environment *env,
                            const interrupt *stop, const char **cause) {
    *to = (dial){.at = &at->at, .trust = at->limits.trust};
    *cause = "";
    if (!at->at.is_unix)
        return resolve(&to->found, at->at.host, at->at.port, deadline_us, env, stop, cause);
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    memcpy(path.sun_path, at->at.host, strlen(at->at.host));
    memcpy(&to->found.each[0], &path, sizeof(path));
    to->found.sizes[0] = sizeof(path);
    to->found.count = 1;
    return DLOCK_OK;
}

static void fail(exchange *question, dlock_status status, const char *cause) {
    question->is_done = true;
    question->status = status;
    text_copy(question->cause, sizeof(question->cause), cause);
}

/* Of a session: what is left of one may still do. */
static bool take_link(server *at, exchange *question) {
    claim_link *link = question->link;
    if (link == NULL) return false;
    if (link->conn != NULL && link->to == at && conn_is_quiet(link->conn)) {
        question->conn = link->conn;
        link->conn = NULL;
        return true;
    }
    if (question->is_link_made) server_hang_up(link);
    return question->is_link_made;
}

static void connect_and_run(server *at, exchange *question, const environment *env,
                            const interrupt *stop) {
    dial to;
    const char *cause;
    int64_t connect_by_us = deadline_after_ms(env->now_us(env), at->limits.connect_timeout_ms);
    question->send_by_us = deadline_earlier(question->send_by_us, connect_by_us);
    dlock_status status = look_up(at, &to, question->send_by_us, env, stop, &cause);
    if (status != DLOCK_OK) {
        fail(question, status, cause);
        return;
    }
    question->dial = &to;
    question->reconnect = connect_next;
    question->conn = connect_next(question);
    if (question->conn == NULL)
        fail(question, DLOCK_NO_MEMORY, "no memory");
    else
        exchange_run(question, 1, env, stop);
}

static void add_address(const server *at, exchange *question) {
    char cause[CAUSE_MAX + 1];
    memcpy(cause, question->cause, sizeof(cause));
    url_describe(&at->at, question->cause, WHERE_SIZE);
    size_t length = strlen(question->cause);
    text_copy(question->cause + length, sizeof(question->cause) - length, ": ");
    text_copy(question->cause + length + 2, sizeof(question->cause) - length - 2, cause);
}

/* With a connection of its own, that nobody waits for in line. */
static void ask_by_link(server *at, exchange *question, const environment *env,
                        const interrupt *stop) {
    if (question->conn != NULL)
        exchange_run(question, 1, env, stop);
    else
        connect_and_run(at, question, env, stop);
    if (question->status != DLOCK_OK) {
        conn_close(question->conn);
        add_address(at, question);
    } else {
        *question->link = (claim_link){.to = at, .conn = question->conn};
    }
    question->conn = NULL;
}

void server_ask(server *at, exchange *question, const environment *env, const interrupt *stop) {
    if (take_link(at, question)) {
        ask_by_link(at, question, env, stop);
        return;
    }
    dlock_status status = pool_take(at->connections, question->is_urgent, &question->conn,
                                    question->send_by_us, env, stop);
    if (status != DLOCK_OK) {
        bool is_canceled = status == DLOCK_CANCELED;
        fail(question, status, is_canceled ? "canceled" : "all connections are in use (pool_max)");
        add_address(at, question);
        return;
    }
    if (question->conn != NULL)
        exchange_run(question, 1, env, stop);
    else
        connect_and_run(at, question, env, stop);
    if (question->status != DLOCK_OK) {
        conn_close(question->conn);
        question->conn = NULL;
        add_address(at, question);
    }
    pool_give(at->connections, question->conn, env->now_us(env));
    question->conn = NULL;
}

void server_hang_up(claim_link *link) {
    conn_close(link->conn);
    *link = (claim_link){0};
}

int server_link_fd(const claim_link *link) {
    return link->conn == NULL ? -1 : conn_fd(link->conn);
}

const server_limits *server_limits_of(const server *at) {
    return &at->limits;
}

const url *server_url(const server *at) {
    return &at->at;
}
