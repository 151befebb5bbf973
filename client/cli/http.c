/* SPDX-License-Identifier: BSD-3-Clause */
/* http.c - see http.h. */
#include "http.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HEAD_SIZE = 16384, SILENCE_MS = 5000 };

static const char text_type[] = "text/plain; version=0.0.4; charset=utf-8";
static const char openmetrics_type[] = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/* False: the head is too long, or did not come in time. */
static bool read_head(int fd, char head[HEAD_SIZE]) {
    size_t length = 0;
    head[0] = '\0';
    while (strstr(head, "\r\n\r\n") == NULL && strstr(head, "\n\n") == NULL) {
        struct pollfd input = {.fd = fd, .events = POLLIN};
        if (length == HEAD_SIZE - 1 || poll(&input, 1, SILENCE_MS) <= 0) return false;
        ssize_t count = read(fd, head + length, HEAD_SIZE - 1 - length);
        if (count <= 0) return false;
        length += (size_t)count;
        head[length] = '\0';
    }
    return true;
}

http_request http_read(int fd) {
    char head[HEAD_SIZE];
    http_request request = {0};
    if (!read_head(fd, head))
        request.refusal = "400 Bad Request";
    else if (strncmp(head, "GET ", 4) != 0)
        request.refusal = "405 Method Not Allowed";
    else if (strncmp(head + 4, "/metrics", 8) != 0 || strchr(" ?", head[12]) == NULL)
        request.refusal = "404 Not Found";
    else
        request.wants_openmetrics = strstr(head, "application/openmetrics-text") != NULL;
    return request;
}

static bool write_all(int fd, const char *bytes, size_t size) {
    while (size > 0) {
        ssize_t count = write(fd, bytes, size);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return false;
        bytes += count;
        size -= (size_t)count;
    }
    return true;
}

bool http_reply(int fd, const http_request *request, const char *body, size_t size) {
    char head[512];
    bool is_fine = request->refusal == NULL;
    if (!is_fine) size = 0;
    int length = snprintf(head, sizeof(head),
                          "HTTP/1.0 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                          "Connection: close\r\n\r\n",
                          is_fine ? "200 OK" : request->refusal,
                          request->wants_openmetrics ? openmetrics_type : text_type, size);
    return write_all(fd, head, (size_t)length) && write_all(fd, body, size);
}
