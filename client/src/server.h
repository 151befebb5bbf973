/* SPDX-License-Identifier: BSD-3-Clause */
/* server.h - one server: its address, its connections, one question at a time per connection. */
#ifndef DLOCK_SERVER_H
#define DLOCK_SERVER_H

#include "claim.h"
#include "exchange.h"
#include "url.h"

typedef struct server server;

typedef struct server_limits {
    uint32_t connect_timeout_ms, io_timeout_ms;
    uint32_t pool_max;
    const tls_context *trust; /* for rediss://, or NULL; must outlive the server */
} server_limits;

/* NULL: no memory. */
server *server_new(const url *at, const server_limits *limits);
/* The same server, to be freed once more. A session's connection has a share of its own. */
server *server_share(server *of);
void server_free(server *old);

/* One question, as exchange_run() does it: the caller has set requests, request_count and the three
 * times. The cause begins with the server's address. */
void server_ask(server *at, exchange *question, const environment *env, const interrupt *stop);

/* One question to each of several servers, all at once: it takes as long as the slowest of them, or
 * of those that suffice, see exchange_run(). At most EXCHANGE_MAX. What is not urgent may have to
 * wait for a connection, one after the other. */
void server_ask_all(server *const at[], exchange *const questions[], size_t count, size_t suffices,
                    const environment *env, const interrupt *stop);

/* Ends a session's connection, if there is one. */
void server_hang_up(claim_link *link);

/* Readable when it has ended; negative: there is none. */
int server_link_fd(const claim_link *link);

const server_limits *server_limits_of(const server *at);
const url *server_url(const server *at);

/* Puts the server's address before a cause. */
void server_sign(const server *at, char cause[CAUSE_MAX + 1]);

/* Where it is, for messages. */
void server_describe(const server *at, char *text, size_t size);

#endif
