/* SPDX-License-Identifier: BSD-3-Clause */
/* conn.h - one connection to one server, as a machine that never waits: whoever polls its
 * descriptor tells it what is ready (exchange.c does). The only file that knows hiredis. */
#ifndef DLOCK_CONN_H
#define DLOCK_CONN_H

#include "dlock.h"
#include "tls.h"
#include "url.h"
#include <sys/socket.h>

enum { COMMAND_WORDS_MAX = 10, CAUSE_MAX = 255 };

typedef struct conn conn;

typedef struct command {
    int count;
    const char *words[COMMAND_WORDS_MAX];
    size_t lengths[COMMAND_WORDS_MAX];
} command;

typedef enum reply_kind {
    REPLY_INTEGER,
    REPLY_NIL,
    REPLY_STATUS, /* text */
    REPLY_ERROR,  /* text */
    REPLY_TEXT,   /* text */
    REPLY_ARRAY,  /* integer: how many; see reply_element() */
    REPLY_OTHER
} reply_kind;

typedef struct reply {
    reply_kind kind;
    int64_t integer;
    char text[CAUSE_MAX + 1]; /* what is longer is cut */
    /* These until the next answer of the connection is taken. */
    const void *elements;
    const char *bytes; /* of REPLY_TEXT: all of it, and a NUL behind it */
    size_t length;
} reply;

/* False: it is no array, or not that long. */
bool reply_element(const reply *of, size_t which, reply *element);

typedef enum conn_result { CONN_WAITING, CONN_REPLIED, CONN_BROKEN } conn_result;

/* Begins to connect to that address, and to log in after that as the URL says. It must outlive the
 * connection, and so must trust, which is that of rediss://, else NULL. NULL: no memory. */
conn *conn_open(const url *to, const tls_context *trust, const struct sockaddr *address,
                socklen_t size);
void conn_close(conn *old);

/* Ends it for everybody who has it: a child that was forked has a copy. */
void conn_shut(conn *c);

/* To be sent, after what was queued before; only when it is ready. False: no memory, nothing is
 * queued. */
bool conn_queue(conn *to, const command *request);

/* What poll(2) is to be asked for, and its answer. */
int conn_fd(const conn *c);
short conn_events(const conn *c);
void conn_advance(conn *c, short ready);

/* Waits a moment (CONN_MOMENT_US at most, give or take a tick of the kernel) for something to read,
 * and reads it: one system call instead of poll(2) and another, where an answer is soon to come.
 * False: it cannot. */
enum { CONN_MOMENT_US = 4000 };
bool conn_await_briefly(conn *c);

/* The next answer, in order. Broken: see the cause; it stays broken. */
conn_result conn_take(conn *c, reply *answer);

/* Connected and let in. */
bool conn_is_ready(const conn *c);

/* Has anything of what was queued last been given to the kernel? */
bool conn_has_sent(const conn *c);

/* So many answers to what was sent are still to come, and nobody will take them: conn_take() passes
 * over them. */
void conn_leave(conn *c, int answers);
bool conn_has_left(const conn *c);

/* Reads what has arrived, without waiting. Replied: all that was left has come. */
conn_result conn_settle(conn *c);

/* Is all that was queued with the kernel? */
bool conn_is_flushed(const conn *c);

/* It is idle: is it still there, with nothing unexpected to read? */
bool conn_is_quiet(conn *c);

/* What has not happened yet, of one that is neither ready nor broken, for people. */
const char *conn_overdue(const conn *c);

/* Of a broken one. The status is that of a request that was not sent. */
dlock_status conn_failure(const conn *c);
const char *conn_cause(const conn *c);

#endif
