/* SPDX-License-Identifier: BSD-3-Clause */
/* access_log.c - see access_log.h.
 *
 *   acquire|name|token|true|ms|fence|local ms|remote ms
 *   acquire|name|token|false|ms|0|local ms|remote ms|DLOCK_TIMEOUT|cause
 *   release|name|token|true|ms|fence
 *   release|name|token|false|ms|fence|DLOCK_LOST|cause
 *
 * What could change the form of a line, in a name, token or cause, is written as \xHH: a hostile
 * name cannot forge a line. */
#include "access_log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Of a name; longer ones are cut, and end with "...". With all bytes escaped, a name, a token and a
 * cause of this length fit into a line. */
enum { TEXT_MAX = 256 };

struct access_log {
    log_file *file;
    dlock_log_fn sink;
    void *sink_arg;
    const environment *env;
};

access_log *access_log_new(log_file *file, dlock_log_fn sink, void *sink_arg,
                           const environment *env) {
    access_log *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        log_file_free(file);
        return NULL;
    }
    *made = (access_log){file, sink, sink_arg, env};
    return made;
}

void access_log_free(access_log *old) {
    if (old == NULL) return;
    log_file_free(old->file);
    free(old);
}

/* Appends, as far as there is room for it and a few bytes more. */
static size_t put(char *line, size_t at, const char *text) {
    static const char digits[] = "0123456789abcdef";
    size_t shown = 0;
    for (; *text != '\0' && at + 8 < LOG_LINE_SIZE; text++, shown++) {
        unsigned char byte = (unsigned char)*text;
        if (shown == TEXT_MAX) {
            memcpy(line + at, "...", 3);
            return at + 3;
        }
        bool is_plain = byte >= ' ' && byte < 0x7f && byte != '|' && byte != '\\';
        if (is_plain) {
            line[at++] = (char)byte;
            continue;
        }
        memcpy(line + at, "\\x", 2);
        line[at + 2] = digits[byte >> 4];
        line[at + 3] = digits[byte & 15];
        at += 4;
    }
    return at;
}

__attribute__((format(printf, 3, 4))) static size_t put_format(char *line, size_t at,
                                                               const char *format, ...) {
    va_list values;
    va_start(values, format);
    int length = vsnprintf(line + at, LOG_LINE_SIZE - at, format, values);
    va_end(values);
    size_t room = LOG_LINE_SIZE - 1 - at;
    return length < 0 ? at : at + ((size_t)length < room ? (size_t)length : room);
}

static double ms(int64_t us) {
    return (double)us / 1000;
}

static size_t put_times(char *line, size_t at, const dlock_call *call, int64_t now_us) {
    int64_t remote_us = call->remote_us != 0 ? call->remote_us : now_us;
    return put_format(line, at, "|%.3f|%.3f", ms(remote_us - call->started_us),
                      ms(now_us - remote_us));
}

static void log_call(access_log *to, const dlock_call *call, dlock_status status) {
    char line[LOG_LINE_SIZE];
    int64_t now_us = to->env->now_us(to->env);
    bool is_acquire = call->operation == DLOCK_ACQUIRING, is_ok = status == DLOCK_OK;
    size_t at = put_format(line, 0, "%s|", is_acquire ? "acquire" : "release");
    at = put(line, at, call->name);
    at = put_format(line, at, "|");
    at = put(line, at, call->token);
    uint64_t fence = is_acquire && !is_ok ? 0 : call->fence;
    at = put_format(line, at, "|%s|%.3f|%llu", is_ok ? "true" : "false",
                    ms(now_us - call->started_us), (unsigned long long)fence);
    if (is_acquire) at = put_times(line, at, call, now_us);
    if (!is_ok) {
        at = put_format(line, at, "|%s|", dlock_status_name(status));
        at = put(line, at, call->cause);
    }
    line[at] = '\0';
    bool is_error = status >= DLOCK_IN_DOUBT;
    if (to->sink != NULL)
        to->sink(to->sink_arg, is_error, line);
    else
        log_file_write(to->file, is_error, line);
}

static dlock_status handle(void *arg, dlock_call *call, dlock_chain *rest) {
    dlock_status status = dlock_next(rest, call);
    if (call->operation != DLOCK_EXTENDING) log_call(arg, call, status);
    return status;
}

dlock_handler access_log_handler(access_log *of) {
    return (dlock_handler){.struct_size = sizeof(dlock_handler),
                           .name = "access log",
                           .order = DLOCK_ORDER_ACCESS_LOG,
                           .arg = of,
                           .handle = handle};
}
