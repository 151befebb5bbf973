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
    addresses known; /* of a path or an address; none of a name */
    resolver *name;  /* NULL: they are known */
};

/* A question under way: where its connection comes from. */
typedef struct dial {
    server *at;
    bool is_lent;    /* by the pool */
    bool is_by_link; /* a connection of its own, that nobody waits for in line */
    lookup *asked;
    const addresses *found; /* NULL: not yet */
    int next;
} dial;

static addresses path_address(const url *at) {
    addresses only = {.count = 1, .sizes = {sizeof(struct sockaddr_un)}};
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    memcpy(path.sun_path, at->host, strlen(at->host));
    memcpy(&only.each[0], &path, sizeof(path));
    return only;
}

server *server_new(const url *at, const server_limits *limits) {
    server *made = calloc(1, sizeof(*made));
    if (made == NULL) return NULL;
    atomic_init(&made->shares, 1);
    made->at = *at;
    made->limits = *limits;
    if (!at->is_tls) made->limits.trust = NULL;
    bool is_known = at->is_unix || resolve_literal(&made->known, at->host, at->port);
    if (at->is_unix) made->known = path_address(at);
    if (!is_known) made->name = resolver_new(at->host, at->port);
    made->connections = pool_new(limits->pool_max);
    if (made->connections == NULL || (!is_known && made->name == NULL)) {
        server_free(made);
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
    resolver_free(old->name);
    free(old);
}

static void fail(exchange *question, dlock_status status, const char *cause) {
    question->is_done = true;
    question->status = status;
    text_copy(question->cause, sizeof(question->cause), cause);
}

/* -- connecting */

/* Each address has its share of the time that is left: one that swallows everything must not
 * hide the next. */
static conn *connect_next(exchange *question, int64_t now_us) {
    dial *to = question->dial;
    const char *cause;
    if (to->found == NULL) {
        question->status = lookup_result(to->asked, &to->found, &cause);
        if (question->status != DLOCK_OK)
            text_copy(question->cause, sizeof(question->cause), cause);
        if (to->found == NULL) return NULL;
    }
    if (to->next == to->found->count) return NULL;
    int chosen = to->next++, others = to->found->count - to->next;
    int64_t share_us = deadline_left_us(question->send_by_us, now_us) / (others + 1);
    question->connect_by_us = others == 0 ? DEADLINE_NEVER : now_us + share_us;
    conn *made =
        conn_open(&to->at->at, to->at->limits.trust,
                  (const struct sockaddr *)&to->found->each[chosen], to->found->sizes[chosen]);
    if (made == NULL) {
        question->status = DLOCK_NO_MEMORY;
        text_copy(question->cause, sizeof(question->cause), "no memory");
    }
    return made;
}

static void begin_to_connect(dial *to, exchange *question, const environment *env) {
    const server *at = to->at;
    int64_t connect_by_us = deadline_after_ms(env->now_us(env), at->limits.connect_timeout_ms);
    question->send_by_us = deadline_earlier(question->send_by_us, connect_by_us);
    question->dial = to;
    question->connect = connect_next;
    if (at->name == NULL) {
        to->found = &at->known;
        return;
    }
    to->asked = resolver_ask(at->name);
    if (to->asked == NULL)
        fail(question, DLOCK_NO_MEMORY, "no memory or thread to look up the host name");
    else
        question->wait_fd = lookup_fd(to->asked);
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

/* -- asking */

/* What others have left behind will do: nothing about this is under way elsewhere. */
static void ask_for_free(server *at, exchange *question, const environment *env) {
    question->is_sent = pool_send(at->connections, question->requests, question->request_count);
    question->sent_us = question->heard_us = env->now_us(env);
    if (question->is_sent)
        fail(question, DLOCK_IN_DOUBT, "it was not waited for");
    else
        fail(question, DLOCK_UNREACHABLE, "there is no connection");
}

/* What was left about the same goes on where it was left. */
static bool resume(server *at, exchange *question, const environment *env) {
    if (question->subject == 0) return false;
    left_news news;
    question->conn = pool_resume(at->connections, question->subject, env->now_us(env), &news);
    question->was_answered = news.is_answered;
    question->was_silent = news.is_late;
    question->is_crowded = news.is_crowded && question->conn == NULL;
    return question->conn != NULL;
}

static void begin(dial *to, server *at, exchange *question, const environment *env,
                  const interrupt *stop) {
    *to = (dial){.at = at};
    question->wait_fd = -1;
    question->connect_by_us = DEADLINE_NEVER;
    to->is_by_link = take_link(at, question);
    if (!to->is_by_link) to->is_lent = resume(at, question, env);
    if (!to->is_by_link && !to->is_lent) {
        dlock_status status = pool_take(at->connections, question->is_urgent, &question->conn,
                                        question->send_by_us, env, stop);
        to->is_lent = status == DLOCK_OK;
        if (status == DLOCK_CANCELED) fail(question, status, "canceled");
        if (status == DLOCK_UNREACHABLE)
            fail(question, status, "all connections are in use (pool_max)");
    }
    if (question->is_done || question->conn != NULL) return;
    if (question->is_for_free)
        ask_for_free(at, question, env);
    else
        begin_to_connect(to, question, env);
}

/* Nor is one given up that others have been left on: what comes next must not overtake them. One
 * that was canceled is better left, too: closed, the server might not read what came last. */
static bool is_to_be_left(const exchange *question) {
    conn *used = question->conn;
    bool is_unanswered = question->status != DLOCK_OK && question->is_sent && used != NULL;
    if (question->is_left || !is_unanswered) return question->is_left;
    if (!conn_is_ready(used) || !conn_is_flushed(used)) return false;
    bool is_optional = question->status == DLOCK_CANCELED && question->subject != 0;
    bool is_enough = question->is_for_free || conn_has_left(used);
    if (!is_enough && (!is_optional || question->is_crowded)) return false;
    conn_leave(used, question->request_count - question->reply_count + question->is_undone);
    return true;
}

static void end(dial *to, exchange *question, const environment *env) {
    lookup_leave(to->asked);
    if (is_to_be_left(question)) {
        pool_leave(to->at->connections, question->conn, question->subject,
                   deadline_after_ms(question->sent_us, to->at->limits.io_timeout_ms),
                   env->now_us(env));
        question->conn = NULL;
        return;
    }
    if (question->status != DLOCK_OK) {
        conn_close(question->conn);
        question->conn = NULL;
        server_sign(to->at, question->cause);
    }
    if (to->is_lent) pool_give(to->at->connections, question->conn, env->now_us(env));
    if (to->is_by_link) server_hang_up(question->link); /* what is left of one that was taken */
    if (to->is_by_link && question->conn != NULL)
        *question->link = (claim_link){.to = server_share(to->at), .conn = question->conn};
    question->conn = NULL;
}

void server_ask(server *at, exchange *question, const environment *env, const interrupt *stop) {
    server_ask_all(&at, &question, 1, 0, env, stop);
}

void server_ask_all(server *const at[], exchange *const questions[], size_t count, size_t suffices,
                    const environment *env, const interrupt *stop) {
    dial dials[EXCHANGE_MAX];
    for (size_t i = 0; i < count; i++)
        begin(&dials[i], at[i], questions[i], env, stop);
    exchange_run(questions, count, suffices, env, stop);
    for (size_t i = 0; i < count; i++)
        end(&dials[i], questions[i], env);
}

void server_hang_up(claim_link *link) {
    if (link->conn != NULL) conn_shut(link->conn); /* a child may have it too */
    conn_close(link->conn);
    server_free(link->to);
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

void server_sign(const server *at, char cause[CAUSE_MAX + 1]) {
    char unsigned_cause[CAUSE_MAX + 1];
    memcpy(unsigned_cause, cause, sizeof(unsigned_cause));
    url_describe(&at->at, cause, WHERE_SIZE);
    size_t length = strlen(cause);
    text_copy(cause + length, CAUSE_MAX + 1 - length, ": ");
    text_copy(cause + length + 2, CAUSE_MAX + 1 - length - 2, unsigned_cause);
}

void server_describe(const server *at, char *text, size_t size) {
    url_describe(&at->at, text, size);
}
