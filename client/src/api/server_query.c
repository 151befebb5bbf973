/* SPDX-License-Identifier: BSD-3-Clause */
/* server_query.c - see server_query.h.
 *
 *   one lock    DLOCK.INFO. A node of a cluster that does not have the name replies MOVED: skipped
 *   a string    GET and PTTL, where there is no module
 *   waiters     DLOCK.INFO WAITERS, and its queue
 *   all locks   SCAN, then DLOCK.INFO for the names of the page, in pipelined groups; and again
 *               until the cursor is 0
 *   info        INFO dlock, line by line
 *
 * Replies come locked and in any thread, so they are copied; once all have come, the thread of the
 * caller reads the copies and tells. A timer ends an exchange that makes no progress. */
#include "api/server_query.h"

#define LOCK_TYPE "dlock-key" /* as TYPE says it: module/README.md */

enum { GROUP_MAX = 100, PAGE_SIZE = 1000, LINE_SIZE = 2048, CURSOR_SIZE = 32 };

/* Some commands to one server, and copies of the replies. */
typedef struct exchange {
    request request;
    query *query;
    server *server;
    waiter waiter;
    bool is_done;
    dlock_status status;
    int64_t heard_us; /* the last reply */
    reply **replies;  /* NULL: not there, or no memory for the copy */
} exchange;

static dlock_status refuse(query *query, const server *server, dlock_status status,
                           const char *cause) {
    cause_write(query->cause, server, cause);
    return status;
}

/* A reply that is not what was asked for. */
static dlock_status refuse_reply(query *query, const server *server, const reply *reply) {
    verdict verdict;
    read_failure(&verdict, reply);
    return refuse(query, server, verdict.status, verdict.cause);
}

/* -- the exchange */

static void on_reply(request *request, int index, const reply *reply) {
    exchange *exchange = container_of(request, struct exchange, request);
    exchange->heard_us = loop_now_us(exchange->query->deployment->loop);
    exchange->replies[index] = reply_copy(reply);
}

static void on_done(request *request, dlock_status status, const char *cause) {
    exchange *exchange = container_of(request, struct exchange, request);
    query *query = exchange->query;
    exchange->is_done = true;
    exchange->status = status == DLOCK_IN_DOUBT ? DLOCK_UNREACHABLE : status;
    if (status != DLOCK_OK) cause_write(query->cause, exchange->server, cause);
    loop_ready(query->deployment->loop, &exchange->waiter);
}

/* Before the request is sent, there is time until the limit; then each reply has an I/O timeout. */
static int64_t end_us(const exchange *exchange) {
    const query *query = exchange->query;
    uint32_t io_timeout_ms = query->deployment->io_timeout_ms;
    int64_t sent_us = exchange->request.sent_us;
    if (sent_us == 0) return query->limit_us;
    int64_t heard_us = exchange->heard_us > sent_us ? exchange->heard_us : sent_us;
    int64_t last_us = deadline_earlier(heard_us, query->limit_us);
    return deadline_after_ms(last_us, io_timeout_ms);
}

/* Looks again after an I/O timeout at the latest: the request may have been sent meanwhile. */
static void wait_for_replies(exchange *exchange) {
    const deployment *deployment = exchange->query->deployment;
    int64_t now_us;
    while (!exchange->is_done && (now_us = loop_now_us(deployment->loop)) < end_us(exchange)) {
        int64_t again_us = deadline_after_ms(now_us, deployment->io_timeout_ms);
        loop_wait_until(deployment->loop, &exchange->waiter,
                        deadline_earlier(end_us(exchange), again_us));
    }
}

/* Waits until all replies have come, or none will. The copies are the caller's to free; with
 * DLOCK_OK there are all. */
static dlock_status ask(query *query, server *server, const command *commands, int count,
                        reply *replies[]) {
    exchange exchange = {
        .request = {.on_reply = on_reply, .on_done = on_done, .reply_bytes_max = REPLY_BYTES_MAX},
        .query = query,
        .server = server,
        .replies = replies};
    loop *loop = query->deployment->loop;
    for (int i = 0; i < count; i++)
        replies[i] = NULL;
    loop_lock(loop);
    if (!server_send(server, commands, count, &exchange.request))
        on_done(&exchange.request, DLOCK_NO_MEMORY, "no memory");
    wait_for_replies(&exchange);
    if (!exchange.is_done) {
        bool was_sent = connection_abandon(&exchange.request);
        exchange.status = refuse(query, server, DLOCK_UNREACHABLE,
                                 was_sent ? "no reply in time" : "no connection in time");
    }
    loop_unlock(loop);
    for (int i = 0; i < count && exchange.status == DLOCK_OK; i++)
        if (replies[i] == NULL)
            exchange.status = refuse(query, server, DLOCK_NO_MEMORY, "no memory");
    return exchange.status;
}

/* -- DLOCK.INFO */

/* Here, at least. */
static bool is_free(const query *query, const reply *reply) {
    bool is_elsewhere = reply_begins_with(reply, "MOVED ") || reply_begins_with(reply, "ASK ");
    return reply->kind == REPLY_NIL || (is_elsewhere && !query->is_alone);
}

static dlock_status tell_lock(query *query, const server *server, const char *name, size_t length,
                              const reply *reply) {
    dlock_inspection lock = {.struct_size = sizeof(lock),
                             .server = server->name,
                             .name = name + query->prefix_length,
                             .name_length = length - query->prefix_length};
    dlock_inspection oldest = {.fence = UINT64_MAX};
    const struct reply *holders = inspection_holders(reply), *holder = NULL;
    if (query->is_enough || is_free(query, reply)) return DLOCK_OK;
    if (holders == NULL) return refuse_reply(query, server, reply);
    while (!query->is_enough && (holder = reply_next(holders, holder)) != NULL) {
        if (!inspection_read(&lock, reply, holder)) return refuse_reply(query, server, reply);
        query->is_found = true;
        if (query->pattern == NULL) query->is_enough = !query->tell(query->arg, &lock);
        if (lock.fence <= oldest.fence) oldest = lock;
    }
    if (query->pattern != NULL) query->is_enough = !query->tell(query->arg, &oldest);
    return DLOCK_OK;
}

/* At most GROUP_MAX names. The replies that have come are told, even if others have not. */
static dlock_status inspect_group(query *query, server *server, const char *const names[],
                                  const size_t lengths[], size_t count) {
    reply *replies[GROUP_MAX];
    command *commands = calloc(count, sizeof(commands[0]));
    if (commands == NULL) return refuse(query, server, DLOCK_NO_MEMORY, "no memory");
    for (size_t i = 0; i < count; i++)
        inspect_command(&commands[i], names[i], lengths[i]);
    dlock_status status = ask(query, server, commands, (int)count, replies);
    for (size_t i = 0; i < count; i++) {
        if (replies[i] == NULL) continue;
        dlock_status told = tell_lock(query, server, names[i], lengths[i], replies[i]);
        if (status == DLOCK_OK) status = told;
        free(replies[i]);
    }
    free(commands);
    return status;
}

dlock_status query_lock(query *query, server *server) {
    size_t length = strlen(query->name);
    return inspect_group(query, server, &query->name, &length, 1);
}

/* -- GET and PTTL */

static dlock_status tell_string(query *query, const server *server, reply *const replies[2]) {
    dlock_inspection lock = {.struct_size = sizeof(lock),
                             .server = server->name,
                             .name = query->name + query->prefix_length,
                             .name_length = strlen(query->name) - query->prefix_length};
    if (is_free(query, replies[0])) return DLOCK_OK;
    if (replies[0]->kind == REPLY_ERROR) return refuse_reply(query, server, replies[0]);
    if (!string_read(&lock, replies[0], replies[1])) return DLOCK_OK;
    query->is_found = true;
    if (!query->is_enough) query->is_enough = !query->tell(query->arg, &lock);
    return DLOCK_OK;
}

dlock_status query_string(query *query, server *server) {
    reply *replies[2];
    command commands[2] = {{0}};
    string_commands(commands, query->name);
    dlock_status status = ask(query, server, commands, 2, replies);
    if (status == DLOCK_OK) status = tell_string(query, server, replies);
    free(replies[0]);
    free(replies[1]);
    return status;
}

/* -- DLOCK.INFO WAITERS */

static dlock_status tell_queue(query *query, const server *server, const reply *reply) {
    const struct reply *queue = waiters_queue(reply), *element = NULL;
    if (is_free(query, reply)) return DLOCK_OK;
    if (queue == NULL) return refuse_reply(query, server, reply);
    while (!query->is_enough && (element = reply_next(queue, element)) != NULL) {
        dlock_waiting waiting = {.struct_size = sizeof(waiting), .server = server->name};
        if (!waiting_read(&waiting, element)) return refuse_reply(query, server, element);
        query->is_enough = !query->tell_waiting(query->arg, &waiting);
    }
    return DLOCK_OK;
}

dlock_status query_waiters(query *query, server *server) {
    reply *info;
    command command = {0};
    waiters_command(&command, query->name, query->waiters_max);
    dlock_status status = ask(query, server, &command, 1, &info);
    if (status == DLOCK_OK) status = tell_queue(query, server, info);
    free(info);
    return status;
}

/* -- SCAN */

static dlock_status inspect_page(query *query, server *server, const reply *names) {
    const char *texts[GROUP_MAX];
    size_t lengths[GROUP_MAX], count = 0;
    const reply *name = NULL;
    while ((name = reply_next(names, name)) != NULL) {
        bool is_name = name->kind == REPLY_TEXT && name->length >= query->prefix_length;
        if (!is_name) return refuse_reply(query, server, name); /* MATCH was ignored */
        texts[count] = name->text;
        lengths[count++] = name->length;
        bool is_last = reply_next(names, name) == NULL;
        if (count < GROUP_MAX && !is_last) continue;
        dlock_status status = inspect_group(query, server, texts, lengths, count);
        if (status != DLOCK_OK || query->is_enough) return status;
        count = 0;
    }
    return DLOCK_OK;
}

static dlock_status scan_page(query *query, server *server, char cursor[CURSOR_SIZE]) {
    reply *page;
    command command = {0};
    command_add_words(&command, COMMAND_WORDS("SCAN", cursor, "MATCH", query->pattern, "TYPE",
                                              LOCK_TYPE, "COUNT"));
    command_add_number(&command, PAGE_SIZE);
    dlock_status status = ask(query, server, &command, 1, &page);
    if (status != DLOCK_OK) return status;
    const reply *next = reply_element(page, 0), *names = reply_element(page, 1);
    bool is_page = next != NULL && next->kind == REPLY_TEXT && next->length < CURSOR_SIZE &&
                   names != NULL && names->kind == REPLY_ARRAY;
    if (is_page) {
        reply_copy_text(next, cursor, CURSOR_SIZE);
        status = inspect_page(query, server, names);
    } else {
        status = refuse_reply(query, server, page);
    }
    free(page);
    return status;
}

dlock_status query_locks(query *query, server *server) {
    char cursor[CURSOR_SIZE] = "0";
    dlock_status status;
    do
        status = scan_page(query, server, cursor);
    while (status == DLOCK_OK && strcmp(cursor, "0") != 0 && !query->is_enough);
    return status;
}

/* -- INFO */

/* "dlock_held:3", without the end of the line. */
static void tell_line(query *query, const char *server, const char *line, size_t length) {
    char text[LINE_SIZE];
    if (length >= sizeof(text) || strncmp(line, "dlock_", 6) != 0) return;
    memcpy(text, line, length);
    text[length] = '\0';
    char *colon = strchr(text, ':');
    if (colon == NULL) return;
    *colon = '\0';
    query->is_found = true;
    query->tell_field(query->arg, server, text, colon + 1);
}

dlock_status query_info(query *query, server *server) {
    reply *info;
    command command = {0};
    command_add_words(&command, COMMAND_WORDS("INFO", "dlock"));
    query->is_found = false;
    dlock_status status = ask(query, server, &command, 1, &info);
    if (status == DLOCK_OK && info->kind != REPLY_TEXT) status = refuse_reply(query, server, info);
    for (const char *line = status == DLOCK_OK ? info->text : ""; *line != '\0';) {
        size_t length = strcspn(line, "\r\n");
        tell_line(query, server->name, line, length);
        line += length + strspn(line + length, "\r\n");
    }
    free(info);
    if (status != DLOCK_OK || query->is_found) return status;
    return refuse(query, server, DLOCK_NO_MODULE, "INFO knows no dlock");
}
