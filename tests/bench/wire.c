/* SPDX-License-Identifier: BSD-3-Clause */
/* wire.c - see wire.h. A request must fit REQUEST_MAX, a line of a reply the buffer. */
#include "wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { REQUEST_MAX = 4096 };

static atomic_int_fast64_t sent_count;

_Noreturn void wire_fail(const char *what) {
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
            errno == 0 ? "not as expected" : strerror(errno));
    exit(1);
}

int64_t wire_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int wire_connect(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int on = 1;
    if (fd < 0) wire_fail("socket");
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) wire_fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

void wire_open(wire *w, int port) {
    memset(w, 0, sizeof(*w));
    w->fd = wire_connect(port);
}

void wire_send(wire *w, const char *const *words) {
    char request[REQUEST_MAX];
    size_t count = 0;
    while (words[count] != NULL)
        count++;
    size_t size = (size_t)sprintf(request, "*%zu\r\n", count);
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(words[i]);
        if (size + length + 32 > sizeof(request)) wire_fail("the size of a request");
        size += (size_t)sprintf(request + size, "$%zu\r\n%s\r\n", length, words[i]);
    }
    atomic_fetch_add_explicit(&sent_count, 1, memory_order_relaxed);
    errno = 0;
    if (send(w->fd, request, size, MSG_NOSIGNAL) != (ssize_t)size) wire_fail("send");
}

/* Cuts the next line off what was received; it is valid until the next call. */
static char *read_line(wire *w) {
    char *end;
    while ((end = memchr(w->buffer + w->begin, '\n', w->end - w->begin)) == NULL) {
        memmove(w->buffer, w->buffer + w->begin, w->end - w->begin);
        w->end -= w->begin;
        w->begin = 0;
        errno = 0;
        ssize_t received = recv(w->fd, w->buffer + w->end, sizeof(w->buffer) - w->end, 0);
        if (received <= 0) wire_fail("recv");
        w->end += (size_t)received;
    }
    char *line = w->buffer + w->begin;
    w->begin = (size_t)(end + 1 - w->buffer);
    end[-1] = '\0'; /* the carriage return before it */
    return line;
}

/* Strings here have no line breaks. */
wire_reply wire_read(wire *w) {
    const char *line = read_line(w);
    wire_reply reply = {.kind = line[0]};
    if (reply.kind == '-') wire_fail(line);
    reply.number = reply.kind == '+' ? 0 : strtoll(line + 1, NULL, 10);
    reply.is_null = (reply.kind == '$' || reply.kind == '*') && reply.number < 0;
    if (reply.kind == '$' && !reply.is_null)
        snprintf(reply.text, sizeof(reply.text), "%s", read_line(w));
    for (int64_t i = 0; reply.kind == '*' && i < reply.number; i++) {
        wire_reply element = wire_read(w);
        if (reply.text[0] == '\0') memcpy(reply.text, element.text, sizeof(reply.text));
    }
    return reply;
}

wire_reply wire_ask(wire *w, const char *const *words) {
    wire_send(w, words);
    return wire_read(w);
}

void wire_tell(wire *w, const char *const *words) {
    if (w->is_told) wire_read(w);
    wire_send(w, words);
    w->is_told = true;
}

int64_t wire_sent_count(void) {
    return atomic_load(&sent_count);
}
