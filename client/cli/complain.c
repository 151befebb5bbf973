/* SPDX-License-Identifier: BSD-3-Clause */
/* complain.c - see complain.h.
 *
 *   exit codes   of the library's statuses
 *   hints        what is wrong with the URL or an option, by the reply of the server. A Sentinel
 *                does not know our commands, a port with TLS drops the connection, and a port
 *                without TLS does not answer a handshake: then the host is asked once more by
 *                another kind of URL, without a password
 *   lines        one write(2) each: several processes may share the stream */
#include "complain.h"

#include "connect.h"
#include "sightings.h"
#include "text.h"
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* -- exit codes */

exit_code exit_code_of(dlock_status status) {
    switch (status) {
    case DLOCK_OK:
        return EXIT_CODE_OK;
    case DLOCK_BUSY:
    case DLOCK_TIMEOUT:
    case DLOCK_NOT_HELD:
        return EXIT_CODE_BUSY;
    case DLOCK_LOST:
        return EXIT_CODE_LOST;
    case DLOCK_QUEUE_FULL:
    case DLOCK_NO_QUORUM:
    case DLOCK_NO_REPLICAS:
    case DLOCK_LIMITED:
    case DLOCK_IN_DOUBT:
        return EXIT_CODE_IN_DOUBT;
    case DLOCK_UNREACHABLE:
        return EXIT_CODE_UNREACHABLE;
    case DLOCK_REFUSED:
        return EXIT_CODE_REFUSED;
    case DLOCK_PROTOCOL:
    case DLOCK_NO_MODULE:
        return EXIT_CODE_PROTOCOL;
    case DLOCK_INVALID:
        return EXIT_CODE_USAGE;
    case DLOCK_NO_MEMORY:
        return EXIT_CODE_NO_RESOURCES;
    case DLOCK_CANCELED:
        break;
    }
    return EXIT_CODE_INTERNAL;
}

/* -- hints */

enum { URL_SIZE = 512, WHY_SIZE = 300 };

static bool has(const char *text, const char *words) {
    return strstr(text, words) != NULL;
}

static bool is_seen(void *arg, const dlock_inspection *lock) {
    (void)arg, (void)lock;
    return false;
}

/* Looks at a lock by another kind of URL for the same host. */
static dlock_status ask_again(const request *request, const char *scheme, const char *path,
                              char why[WHY_SIZE]) {
    char url[URL_SIZE];
    const char *host = strstr(request->urls[0], "://") + 3, *urls[] = {url};
    int length = (int)strcspn(host, "/?");
    for (int i = length; i > 0; i--) {
        if (host[i - 1] != '@') continue;
        host += i;
        length -= i;
        break;
    }
    snprintf(url, sizeof(url), "%s%.*s%s", scheme, length, host, path);
    dlock_client *client = NULL;
    dlock_client_options options = connect_options(request);
    options.urls = urls;
    options.prefix = NULL; /* perhaps without TLS, so nothing of the user's is sent */
    int64_t timeout_ms = request->connect_timeout_ms + request->io_timeout_ms;
    dlock_status status = dlock_client_new(&client, &options);
    if (status == DLOCK_OK)
        status = dlock_inspect(client, "dlock", timeout_ms, is_seen, NULL, why, WHY_SIZE);
    dlock_client_free(client);
    return status;
}

static bool is_sentinel(const request *request) {
    char why[WHY_SIZE] = "";
    ask_again(request, "redis+sentinel://", "/dlock", why);
    return has(why, "knows no master");
}

/* Is there a server that speaks, with or without TLS as the scheme says? */
static bool is_answered_by(const request *request, const char *scheme) {
    char why[WHY_SIZE] = "";
    dlock_status status = ask_again(request, scheme, "", why);
    return status == DLOCK_OK || status == DLOCK_NOT_HELD || status == DLOCK_NO_MODULE ||
           status == DLOCK_REFUSED;
}

/* What the user wrote becomes the PX of a command: none of them has to know that word. */
static const char *find_time_hint(const request *request, const char *cause) {
    if (has(cause, "--at-least: ")) return "--at-least is longer than the server allows";
    if (request->is_session || request->is_session_by_url)
        return "three times --lease, the timeout of the session, is longer than the server allows";
    return "--lease is longer than the server allows";
}

/* In words, instead of those of the status; NULL: no hint. cause: the library's. */
static const char *find_hint(const request *request, dlock_status status, const char *cause) {
    const char *url = request->urls[0];
    bool is_cluster = has(url, "+cluster://");
    bool is_plain = request->url_count == 1 && strncmp(url, "redis://", 8) == 0;
    bool is_secure = request->url_count == 1 && strncmp(url, "rediss://", 9) == 0;
    bool is_cut = has(cause, "Connection reset") || has(cause, "closed the connection");
    if (!is_cluster && ((status == DLOCK_PROTOCOL && has(cause, "MOVED ")) ||
                        (status == DLOCK_REFUSED && has(cause, "CLUSTERDOWN "))))
        return "the server is a node of a cluster: use redis+cluster://";
    if (has(cause, "NOAUTH ")) return "the server wants a password, see --password-file";
    if (has(cause, "WRONGPASS ")) return "the user or the password is wrong";
    if (has(cause, "WRONGTYPE ")) return "the key of this name is not a lock";
    if (has(cause, "READONLY ")) return "the server is a replica: use its master";
    if (has(cause, "(dlock.max-lease)")) return find_time_hint(request, cause);
    if (is_cluster && has(cause, "cluster support disabled"))
        return "the server is not a node of a cluster: use redis://";
    if (has(url, "+sentinel://") && has(cause, "unknown command") && has(cause, "SENTINEL"))
        return "the server is not a Sentinel: use redis://";
    if (is_plain && has(cause, "unknown command") && is_sentinel(request))
        return "the server is a Sentinel: use redis+sentinel://host/master";
    if (is_plain && is_cut && is_answered_by(request, "rediss://"))
        return "the server expects TLS: use rediss://";
    if (is_secure && has(cause, "TLS") && is_answered_by(request, "redis://"))
        return "the server does not speak TLS at this port: use redis://";
    return NULL;
}

/* -- lines */

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

exit_code complain_status(const request *request, const char *context, dlock_status status,
                          const char *cause) {
    const char *hint = find_hint(request, status, cause);
    const char *text = hint != NULL ? hint : dlock_status_text(status);
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

void complain_failures(const char *context, const char *why) {
    failure failure;
    while (failures_next(&why, &failure))
        complain("%s: no result from %.*s", context, (int)failure.length, failure.line);
}
