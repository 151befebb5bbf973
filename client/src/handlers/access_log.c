/* SPDX-License-Identifier: BSD-3-Clause */
/* access_log.c - see access_log.h.
 *
 *   acquire|name|token|true|ms|fence|local ms|remote ms
 *   acquire|name|token|false|ms|0|local ms|remote ms|DLOCK_TIMEOUT|cause
 *   release|name|token|true|ms|fence
 *   release|name|token|false|ms|fence|DLOCK_LOST|cause
 *
 * Bytes of a name, token or cause that could change the form of a line are written as \xHH: a
 * hostile name cannot forge a line. */
#include "handlers/access_log.h"

#include "base/text.h"
#include <stdio.h>

/* Longer texts are cut, and end with "...". Three escaped texts fit into a line. */
enum { TEXT_MAX = 256, ESCAPED_SIZE = 4 * TEXT_MAX + 4, LINE_SIZE = 4096 };

static const char *escape(char escaped[ESCAPED_SIZE], const char *text) {
    char *end = escaped;
    for (size_t i = 0; i < TEXT_MAX && text[i] != '\0'; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte >= ' ' && byte < 0x7f && byte != '|' && byte != '\\') {
            *end++ = (char)byte;
            continue;
        }
        *end++ = '\\';
        *end++ = 'x';
        text_put_hex(end, &byte, 1);
        end += 2;
    }
    bool is_cut = strnlen(text, TEXT_MAX + 1) > TEXT_MAX;
    memcpy(end, is_cut ? "..." : "", is_cut ? 4 : 1);
    return escaped;
}

static double ms(int64_t us) {
    return (double)us / 1000;
}

static void format_line(char line[LINE_SIZE], const dlock_call *call, int64_t now_us) {
    char name[ESCAPED_SIZE], token[ESCAPED_SIZE], cause[ESCAPED_SIZE], times[64] = "";
    bool is_acquire = call->operation == DLOCK_ACQUIRING, is_ok = call->status == DLOCK_OK;
    int64_t remote_us = call->remote_us != 0 ? call->remote_us : now_us;
    uint64_t fence = is_acquire && !is_ok ? 0 : call->fence;
    if (is_acquire)
        snprintf(times, sizeof(times), "|%.3f|%.3f", ms(remote_us - call->started_us),
                 ms(now_us - remote_us));
    int length =
        snprintf(line, LINE_SIZE, "%s|%s|%s|%s|%.3f|%llu%s", is_acquire ? "acquire" : "release",
                 escape(name, call->name), escape(token, call->token), is_ok ? "true" : "false",
                 ms(now_us - call->started_us), (unsigned long long)fence, times);
    if (!is_ok)
        snprintf(line + length, LINE_SIZE - (size_t)length, "|%s|%s",
                 dlock_status_name(call->status), escape(cause, call->cause));
}

static void leave_access_log(void *arg, dlock_call *call) {
    const access_log *log = arg;
    char line[LINE_SIZE];
    bool is_loss = call->operation == DLOCK_RELEASING && call->status == DLOCK_LOST;
    dlock_log_level level = call->status >= DLOCK_IN_DOUBT ? DLOCK_LOG_ERROR
                            : is_loss                      ? DLOCK_LOG_WARNING
                                                           : DLOCK_LOG_INFO;
    if (call->operation == DLOCK_EXTENDING) return;
    format_line(line, call, loop_now_us(call_of(call)->loop));
    log->sink(log->sink_arg, level, line);
}

dlock_handler access_log_handler(access_log *log) {
    return (dlock_handler){.name = "access log",
                           .order = DLOCK_ORDER_ACCESS_LOG,
                           .arg = log,
                           .leave = leave_access_log};
}
