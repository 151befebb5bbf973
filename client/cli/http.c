/* SPDX-License-Identifier: BSD-3-Clause */
/* http.c - see http.h.
 *
 *   read     the head of the request, up to a deadline
 *   accept   the formats that the request accepts, by RFC 9110
 *   reply    up to a deadline of its own: a reader that does not read keeps no process */
#include "http.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_SIZE = 16384, READ_MS = 5000, WRITE_MS = 5000 };

static const char text_type[] = "text/plain; version=0.0.4; charset=utf-8";
static const char openmetrics_type[] = "application/openmetrics-text; version=1.0.0; charset=utf-8";

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* False: not ready before the deadline. */
static bool wait_for(int fd, short events, int64_t deadline_ms) {
    struct pollfd poll_fd = {.fd = fd, .events = events};
    for (;;) {
        int64_t rest_ms = deadline_ms - now_ms();
        int count = poll(&poll_fd, 1, rest_ms > 0 ? (int)rest_ms : 0);
        if (count == 0) errno = ETIMEDOUT;
        if (count >= 0 || errno != EINTR) return count > 0;
    }
}

/* -- read */

/* NULL: the head is complete. Otherwise the status of the refusal. */
static const char *read_head(int fd, char head[HEAD_SIZE]) {
    int64_t deadline_ms = now_ms() + READ_MS;
    size_t length = 0;
    head[0] = '\0';
    while (strstr(head, "\r\n\r\n") == NULL && strstr(head, "\n\n") == NULL) {
        if (length == HEAD_SIZE - 1) return "400 Bad Request";
        if (!wait_for(fd, POLLIN, deadline_ms)) return "408 Request Timeout";
        ssize_t count = read(fd, head + length, HEAD_SIZE - 1 - length);
        if (count <= 0) return "400 Bad Request";
        length += (size_t)count;
        head[length] = '\0';
    }
    return NULL;
}

/* -- accept */

/* The q of one element of an Accept field, such as "text/plain;version=0.0.4;q=0.5". 0: another
 * type, or one that is not accepted. */
static double element_quality(const char *element, const char *type) {
    element += strspn(element, " \t");
    size_t length = strlen(type);
    if (strncasecmp(element, type, length) != 0) return 0;
    if (strchr(" \t;,\r\n", element[length]) == NULL) return 0;
    const char *end = element + strcspn(element, ",\r\n");
    for (const char *c = element + length; c < end; c++) {
        if (*c != ';') continue;
        const char *parameter = c + 1 + strspn(c + 1, " \t");
        if (strncasecmp(parameter, "q=", 2) == 0) return strtod(parameter + 2, NULL);
    }
    return 1;
}

/* The highest q of the type in the Accept fields of the head. */
static double quality(const char *head, const char *type) {
    double highest = 0;
    for (const char *end = strchr(head, '\n'); end != NULL; end = strchr(end + 1, '\n')) {
        if (strncasecmp(end + 1, "accept:", 7) != 0) continue;
        for (const char *c = end + 7; *c == ':' || *c == ','; c += 1 + strcspn(c + 1, ",\r\n")) {
            double q = element_quality(c + 1, type);
            if (q > highest) highest = q;
        }
    }
    return highest;
}

http_request http_read(int fd) {
    char head[HEAD_SIZE];
    http_request request = {.refusal = read_head(fd, head)};
    if (request.refusal != NULL) return request;
    if (strncmp(head, "GET ", 4) != 0)
        request.refusal = "405 Method Not Allowed";
    else if (strncmp(head + 4, "/metrics", 8) != 0 || strchr(" ?", head[12]) == NULL)
        request.refusal = "404 Not Found";
    double openmetrics = quality(head, "application/openmetrics-text");
    request.wants_openmetrics = openmetrics > 0 && openmetrics >= quality(head, "text/plain");
    return request;
}

/* -- reply */

/* Never blocks, if it is called when the descriptor is ready: a pipe then takes PIPE_BUF bytes. */
static ssize_t write_some(int fd, const char *bytes, size_t size) {
    ssize_t count = send(fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0 || errno != ENOTSOCK) return count;
    return write(fd, bytes, size < PIPE_BUF ? size : PIPE_BUF);
}

static bool write_all(int fd, const char *bytes, size_t size, int64_t deadline_ms) {
    while (size > 0) {
        if (!wait_for(fd, POLLOUT, deadline_ms)) return false;
        ssize_t count = write_some(fd, bytes, size);
        if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (count < 0) return false;
        bytes += count;
        size -= (size_t)count;
    }
    return true;
}

bool http_reply(int fd, const http_request *request, const char *body, size_t size) {
    char head[512];
    bool is_fine = request->refusal == NULL;
    int64_t deadline_ms = now_ms() + WRITE_MS;
    int length =
        snprintf(head, sizeof(head),
                 "HTTP/1.0 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                 "Connection: close\r\n\r\n",
                 is_fine ? "200 OK" : request->refusal,
                 is_fine && request->wants_openmetrics ? openmetrics_type : text_type, size);
    return write_all(fd, head, (size_t)length, deadline_ms) &&
           write_all(fd, body, size, deadline_ms);
}
