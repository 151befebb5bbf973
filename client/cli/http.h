/* SPDX-License-Identifier: BSD-3-Clause */
/* http.h - as much of HTTP as one scrape needs: one GET, one reply, end of the connection. */
#ifndef DLOCK_CLI_HTTP_H
#define DLOCK_CLI_HTTP_H

#include <stdbool.h>
#include <stddef.h>

typedef struct http_request {
    const char *refusal; /* a status line without the version; NULL: the request is fine */
    bool wants_openmetrics;
} http_request;

/* Reads the head of a request, for 5 seconds and 16 kilobytes at most. */
http_request http_read(int fd);

/* The status is the refusal, or 200. False: the reply could not be sent within 5 seconds. */
bool http_reply(int fd, const http_request *request, const char *body, size_t size);

#endif
