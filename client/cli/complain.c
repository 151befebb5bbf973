/* SPDX-License-Identifier: BSD-3-Clause */
/* complain.c - see complain.h. One write(2) per line: several processes may share the stream. */
#include "complain.h"

#include "escape.h"
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_SIZE = 1024, PATIENCE_MS = 200 };

/* At most PIPE_BUF bytes: a pipe with room for so many takes the line without blocking. */
static void write_line(const char *line) {
    struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&fd, 1, PATIENCE_MS) <= 0) return;
    if (write(STDERR_FILENO, line, strlen(line)) < 0) return; /* nobody reads stderr */
}

void complain(const char *format, ...) {
    char raw[LINE_SIZE], line[2 * LINE_SIZE] = "dlock: ";
    size_t length = strlen(line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(raw, sizeof(raw), format, arguments);
    va_end(arguments);
    escape_text(line + length, sizeof(line) - length - 1, raw, strlen(raw));
    strcat(line, "\n");
    write_line(line);
}

/* Replies that only a node of a cluster gives. The server's words are in the cause. */
static const struct sign {
    dlock_status status;
    const char *words;
} signs[] = {{DLOCK_PROTOCOL, "MOVED "}, {DLOCK_REFUSED, "CLUSTERDOWN "}};

static bool is_cluster(const request *request) {
    const char *url = request->urls[0];
    return strncmp(url, "redis+cluster:", 14) == 0 || strncmp(url, "rediss+cluster:", 15) == 0;
}

static const char *find_text(const request *request, dlock_status status, const char *cause) {
    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]) && !is_cluster(request); i++)
        if (signs[i].status == status && strstr(cause, signs[i].words) != NULL)
            return "the server is a node of a cluster: use redis+cluster://";
    return dlock_status_text(status);
}

exit_code complain_status(const request *request, const char *context, dlock_status status,
                          const char *cause) {
    const char *text = find_text(request, status, cause);
    if (cause[0] == '\0')
        complain("%s: %s", context, text);
    else
        complain("%s: %s (%s)", context, text, cause);
    return exit_code_of(status);
}

exit_code complain_query(const request *request, const char *context, dlock_status status,
                         const char *cause, const char *rules) {
    bool is_forbidden = status == DLOCK_REFUSED && strstr(cause, "NOPERM") != NULL;
    if (!is_forbidden) return complain_status(request, context, status, cause);
    complain("%s: the user needs the ACL rules %s (%s)", context, rules, cause);
    return exit_code_of(status);
}
