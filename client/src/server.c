/* SPDX-License-Identifier: BSD-3-Clause */
/* server.c - see server.h. */
#include "server.h"

#include "deadline.h"
#include "pool.h"
#include "resolve.h"
#include "text.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/un.h>

enum { WHERE_SIZE = CAUSE_MAX / 2 }; /* in a cause, so that there is room for the rest */

struct server {
    atomic_uint shares;
    url at;
    server_limits limits;
    pool *connections;
};

/* The addresses of a server that are not tried yet. */
typedef struct dial {
    const url *at;
    addresses found;
    int next;
} dial;

server *server_new(const url *at, const server_limits *limits) {
    server *made = calloc(1, sizeof(*made));
    if (made == NULL) return NULL;
    atomic_init(&made->shares, 1);
    made->at = *at;
    made->limits = *limits;
    made->connections = pool_new(limits->pool_max);
    if (made->connections == NULL) {
        free(made);
        return NULL;
    }
    return made;
}

server *server_share(server *of) {
    atomic_fetch_add(&of->shares, 1);
    return of;
}

void server_free(server *old) {
    if (old == NULL || atomic_fetch_sub(&old->shares, 1) > 1) return;
    pool_free(old->connections);
    free(old);
}

static conn *connect_next(exchange *question) {
    dial *to = question->dial;
    if (to->next == to->found.count) return NULL;
    int chosen = to->next++;
    return conn_open(to->at, (const struct sockaddr *)&to->found.each[chosen],
                     to->found.sizes[chosen]);
}

static dlock_status look_up(const server *at, dial *to, int64_t deadline_us, const environment *env,
                            const interrupt *stop, const char **cause) {
    *to = (dial){.at = &at->at};
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

/* Finds out where to connect to, and begins to. */
static void begin_to_connect(server *at, exchange *question, dial *to, const environment *env,
                             const interrupt *stop) {
    const char *cause;
    int64_t connect_by_us = deadline_after_ms(env->now_us(env), at->limits.connect_timeout_ms);
    question->send_by_us = deadline_earlier(question->send_by_us, connect_by_us);
    dlock_status status = look_up(at, to, question->send_by_us, env, stop, &cause);
    if (status != DLOCK_OK) {
        fail(question, status, cause);
        return;
    }
    question->dial = to;
    question->reconnect = connect_next;
    question->conn = connect_next(question);
    if (question->conn == NULL) fail(question, DLOCK_NO_MEMORY, "no memory");
}

/* Whose connection a question has. */
typedef enum lender { NOBODY, LINK, POOL } lender;

/* Until the question can be run, or has failed: then it is done. */
static lender begin(server *at, exchange *question, dial *to, const environment *env,
                    const interrupt *stop) {
    lender from = LINK;
    if (!take_link(at, question)) {
        dlock_status status = pool_take(at->connections, question->is_urgent, &question->conn,
                                        question->send_by_us, env, stop);
        if (status != DLOCK_OK) {
            bool is_canceled = status == DLOCK_CANCELED;
            fail(question, status,
                 is_canceled ? "canceled" : "all connections are in use (pool_max)");
            return NOBODY;
        }
        from = POOL;
    }
    if (question->conn == NULL) begin_to_connect(at, question, to, env, stop);
    return from;
}

static void end(server *at, exchange *question, lender from, const environment *env) {
    if (from == LINK) server_hang_up(question->link); /* what is left of one that was taken */
    if (question->status != DLOCK_OK) {
        conn_close(question->conn);
        question->conn = NULL;
        server_sign(at, question->cause);
    } else if (from == LINK) {
        *question->link = (claim_link){.to = server_share(at), .conn = question->conn};
    }
    if (from == POOL) pool_give(at->connections, question->conn, env->now_us(env));
    question->conn = NULL;
}

void server_ask(server *at, exchange *question, const environment *env, const interrupt *stop) {
    dial to;
    lender from = begin(at, question, &to, env, stop);
    exchange_run(question, 1, env, stop);
    end(at, question, from, env);
}

void server_ask_all(server *const at[], exchange questions[], size_t count, const environment *env,
                    const interrupt *stop) {
    dial to[EXCHANGE_MAX];
    lender from[EXCHANGE_MAX];
    for (size_t i = 0; i < count; i++)
        from[i] = begin(at[i], &questions[i], &to[i], env, stop);
    exchange_run(questions, count, env, stop);
    for (size_t i = 0; i < count; i++)
        end(at[i], &questions[i], from[i], env);
}

void server_hang_up(claim_link *link) {
    conn_close(link->conn);
    server_free(link->to);
    *link = (claim_link){0};
}

int server_link_fd(const claim_link *link) {
    return link->conn == NULL ? -1 : conn_fd(link->conn);
}

void server_sign(const server *at, char cause[CAUSE_MAX + 1]) {
    char unsigned_cause[CAUSE_MAX + 1];
    memcpy(unsigned_cause, cause, sizeof(unsigned_cause));
    url_describe(&at->at, cause, WHERE_SIZE);
    size_t length = strlen(cause);
    text_copy(cause + length, CAUSE_MAX + 1 - length, ": ");
    text_copy(cause + length + 2, CAUSE_MAX + 1 - length - 2, unsigned_cause);
}

const server_limits *server_limits_of(const server *at) {
    return &at->limits;
}

const url *server_url(const server *at) {
    return &at->at;
}
