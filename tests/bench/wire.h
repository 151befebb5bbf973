/* SPDX-License-Identifier: BSD-3-Clause */
/* wire.h - what the programs here share: a connection to a server on loopback, requests, replies,
 * the clock, and the end when something is not as expected. */
#ifndef WIRE_H
#define WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WIRE_BUFFER = 1024, WIRE_TEXT = 64 };

/* The words of a request. */
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

typedef struct wire {
    int fd;
    bool is_told; /* the next reply is one that nobody waits for */
    size_t begin, end;
    char buffer[WIRE_BUFFER]; /* received; what is not yet read is from begin to end */
} wire;

typedef struct wire_reply {
    char kind; /* its first byte */
    bool is_null;
    int64_t number;       /* an integer's value */
    char text[WIRE_TEXT]; /* the first string in it */
} wire_reply;

/* Says on stderr what failed, with errno if it is set, and exits with status 1. */
_Noreturn void wire_fail(const char *what);

int64_t wire_now_ns(void);

int wire_connect(int port);
void wire_open(wire *w, int port);

/* words end with NULL. */
void wire_send(wire *w, const char *const *words);

/* The next reply; one that is an error is a failure. */
wire_reply wire_read(wire *w);

/* Sends a request and waits for its reply. */
wire_reply wire_ask(wire *w, const char *const *words);

/* Sends a request and does not wait for its reply. For a connection that is for nothing else. */
void wire_tell(wire *w, const char *const *words);

/* Requests sent so far, over all connections. */
int64_t wire_sent_count(void);

#endif
