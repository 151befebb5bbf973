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
 * The first request goes to all servers at once. Replies come locked and in any thread, so they are
 * copied; once all replies of a server have come, the thread of the caller reads the copies, tells,
 * and asks that server for the rest, if there is more. A timer ends an exchange that makes no
 * progress. */
#include "api/server_query.h"

#define LOCK_TYPE "dlock-key" /* as TYPE says it: module/README.md */

enum { GROUP_MAX = 100, PAGE_SIZE = 1000, LINE_SIZE = 2048, CURSOR_SIZE = 32, LOOK_US = 1000 };

/* Some commands to one server, and copies of the replies. */
typedef struct exchange {
    request request;
    query *query;
    server *server;
    waiter *waiter; /* of the thread of the caller */
    bool is_done;
    bool is_taken; /* the replies were told, or no reply came in time */
    dlock_status status;
    int64_t heard_us; /* the last reply */
    int count;
    reply **replies;                          /* NULL: not there, or no memory for the copy */
    reply *first_replies[QUERY_COMMANDS_MAX]; /* to the first request of a kind */
    char cause[CAUSE_SIZE];
} exchange;

static dlock_status fail_query(query *query, const server *server, dlock_status status,
                               const char *cause) {
    cause_write(query->cause, server, cause);
    return status;
}

/* A reply that is not what was asked for. */
static dlock_status fail_query_by_reply(query *query, const server *server, const reply *reply) {
    verdict verdict;
    read_failure(&verdict, reply);
    return fail_query(query, server, verdict.status, verdict.cause);
}

/* -- the exchange */

static void on_exchange_reply(request *request, int index, const reply *reply) {
    exchange *exchange = container_of(request, struct exchange, request);
    exchange->heard_us = loop_now_us(exchange->query->deployment->loop);
    exchange->replies[index] = reply_copy(reply);
}

static void fail_exchange(exchange *exchange, dlock_status status, const char *cause) {
    exchange->status = status;
    cause_write(exchange->cause, exchange->server, cause);
}

static void on_exchange_done(request *request, dlock_status status, const char *cause) {
    exchange *exchange = container_of(request, struct exchange, request);
    exchange->is_done = true;
    if (status != DLOCK_OK)
        fail_exchange(exchange, status == DLOCK_IN_DOUBT ? DLOCK_UNREACHABLE : status, cause);
    loop_ready(exchange->query->deployment->loop, exchange->waiter);
}

/* Locked. The exchange has query, server, waiter and room for the replies. */
static void begin_exchange(exchange *exchange, const command *commands, int count) {
    exchange->request = (request){.on_reply = on_exchange_reply,
                                  .on_done = on_exchange_done,
                                  .reply_bytes_max = REPLY_BYTES_MAX};
    exchange->count = count;
    for (int i = 0; i < count; i++)
        exchange->replies[i] = NULL;
    if (!server_send(exchange->server, commands, count, &exchange->request))
        on_exchange_done(&exchange->request, DLOCK_NO_MEMORY, "no memory");
}

/* Before the request is sent, there is time until the limit; then each reply has an I/O timeout. */
static int64_t exchange_end_us(const exchange *exchange) {
    const query *query = exchange->query;
    uint32_t io_timeout_ms = query->deployment->io_timeout_ms;
    int64_t sent_us = exchange->request.sent_us;
    if (sent_us == 0) return query->limit_us;
    int64_t heard_us = exchange->heard_us > sent_us ? exchange->heard_us : sent_us;
    int64_t last_us = deadline_earlier(heard_us, query->limit_us);
    return deadline_after_ms(last_us, io_timeout_ms);
}

/* Locked. Nothing more can come, or is waited for. */
static bool exchange_is_over(const exchange *exchange) {
    return exchange->is_done ||
           loop_now_us(exchange->query->deployment->loop) >= exchange_end_us(exchange);
}

/* Locked. Waits until a reply may have come, or until_us. Looks again after an I/O timeout at the
 * latest: a request may have been sent meanwhile. */
static void wait_for_reply(const query *query, waiter *waiter, int64_t until_us) {
    const deployment *deployment = query->deployment;
    int64_t again_us = deadline_after_ms(loop_now_us(deployment->loop), deployment->io_timeout_ms);
    loop_wait_until(deployment->loop, waiter, deadline_earlier(until_us, again_us));
}

/* Locked. With DLOCK_OK all replies are there; else query->cause is set. */
static dlock_status end_exchange(exchange *exchange) {
    if (!exchange->is_done) {
        bool was_sent = connection_abandon(&exchange->request);
        fail_exchange(exchange, DLOCK_UNREACHABLE,
                      was_sent ? "no reply in time" : "no connection in time");
    }
    for (int i = 0; i < exchange->count && exchange->status == DLOCK_OK; i++)
        if (exchange->replies[i] == NULL) fail_exchange(exchange, DLOCK_NO_MEMORY, "no memory");
    if (exchange->status != DLOCK_OK)
        text_copy(exchange->query->cause, DLOCK_CAUSE_SIZE, exchange->cause);
    return exchange->status;
}

/* Waits until all replies have come, or none will. The copies are the caller's to free; with
 * DLOCK_OK there are all. */
static dlock_status exchange_commands(query *query, server *server, const command *commands,
                                      int count, reply *replies[]) {
    waiter waiter = {0};
    exchange exchange = {.query = query, .server = server, .waiter = &waiter, .replies = replies};
    loop *loop = query->deployment->loop;
    loop_lock(loop);
    begin_exchange(&exchange, commands, count);
    while (!exchange_is_over(&exchange))
        wait_for_reply(query, &waiter, exchange_end_us(&exchange));
    dlock_status status = end_exchange(&exchange);
    loop_unlock(loop);
    return status;
}

/* -- DLOCK.INFO */

/* Is the lock free at this server? */
static bool is_free(const query *query, const reply *reply) {
    bool is_elsewhere = reply_begins_with(reply, "MOVED ") || reply_begins_with(reply, "ASK ");
    return reply->kind == REPLY_NIL || (is_elsewhere && !query->is_alone);
}

static dlock_status tell_holders(query *query, const server *server, const char *name,
                                 size_t length, const reply *reply) {
    dlock_inspection lock = {.struct_size = sizeof(lock),
                             .server = server->name,
                             .name = name + query->prefix_length,
                             .name_length = length - query->prefix_length};
    dlock_inspection oldest = {.fence = UINT64_MAX};
    const struct reply *holders = inspection_holders(reply), *holder = NULL;
    if (query->is_enough || is_free(query, reply)) return DLOCK_OK;
    if (holders == NULL) return fail_query_by_reply(query, server, reply);
    while (!query->is_enough && (holder = reply_next(holders, holder)) != NULL) {
        if (!inspection_read(&lock, reply, holder))
            return fail_query_by_reply(query, server, reply);
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
    if (commands == NULL) return fail_query(query, server, DLOCK_NO_MEMORY, "no memory");
    for (size_t i = 0; i < count; i++)
        inspect_command(&commands[i], names[i], lengths[i]);
    dlock_status status = exchange_commands(query, server, commands, (int)count, replies);
    for (size_t i = 0; i < count; i++) {
        if (replies[i] == NULL) continue;
        dlock_status told = tell_holders(query, server, names[i], lengths[i], replies[i]);
        if (status == DLOCK_OK) status = told;
        free(replies[i]);
    }
    free(commands);
    return status;
}

static int ask_lock(const query *query, command commands[]) {
    inspect_command(&commands[0], query->name, strlen(query->name));
    return 1;
}

static dlock_status take_lock(query *query, server *server, reply *const replies[]) {
    return tell_holders(query, server, query->name, strlen(query->name), replies[0]);
}

const query_kind query_lock = {ask_lock, take_lock};

/* -- GET and PTTL */

static int ask_string(const query *query, command commands[]) {
    string_commands(commands, query->name);
    return 2;
}

static dlock_status take_string(query *query, server *server, reply *const replies[]) {
    dlock_inspection lock = {.struct_size = sizeof(lock),
                             .server = server->name,
                             .name = query->name + query->prefix_length,
                             .name_length = strlen(query->name) - query->prefix_length};
    if (is_free(query, replies[0])) return DLOCK_OK;
    if (replies[0]->kind == REPLY_ERROR) return fail_query_by_reply(query, server, replies[0]);
    if (!string_read(&lock, replies[0], replies[1])) return DLOCK_OK;
    query->is_found = true;
    if (!query->is_enough) query->is_enough = !query->tell(query->arg, &lock);
    return DLOCK_OK;
}

const query_kind query_string = {ask_string, take_string};

/* -- DLOCK.INFO WAITERS */

static int ask_waiters(const query *query, command commands[]) {
    waiters_command(&commands[0], query->name, query->waiters_max);
    return 1;
}

static dlock_status take_waiters(query *query, server *server, reply *const replies[]) {
    const reply *queue = waiters_queue(replies[0]), *element = NULL;
    if (is_free(query, replies[0])) return DLOCK_OK;
    if (queue == NULL) return fail_query_by_reply(query, server, replies[0]);
    while (!query->is_enough && (element = reply_next(queue, element)) != NULL) {
        dlock_waiting waiting = {.struct_size = sizeof(waiting), .server = server->name};
        if (!waiting_read(&waiting, element)) return fail_query_by_reply(query, server, element);
        query->is_enough = !query->tell_waiting(query->arg, &waiting);
    }
    return DLOCK_OK;
}

const query_kind query_waiters = {ask_waiters, take_waiters};

/* -- SCAN */

static dlock_status inspect_page(query *query, server *server, const reply *names) {
    const char *texts[GROUP_MAX];
    size_t lengths[GROUP_MAX], count = 0;
    const reply *name = NULL;
    while ((name = reply_next(names, name)) != NULL) {
        bool is_name = name->kind == REPLY_TEXT && name->length >= query->prefix_length;
        if (!is_name) return fail_query_by_reply(query, server, name); /* MATCH was ignored */
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

static void scan_command(const query *query, const char *cursor, command *command) {
    command_add_words(command, COMMAND_WORDS("SCAN", cursor, "MATCH", query->pattern, "TYPE",
                                             LOCK_TYPE, "COUNT"));
    command_add_number(command, PAGE_SIZE);
}

/* Tells of the locks of the page, and sets the cursor of the next page. */
static dlock_status take_page(query *query, server *server, const reply *page,
                              char cursor[CURSOR_SIZE]) {
    const reply *next = reply_element(page, 0), *names = reply_element(page, 1);
    bool is_page = next != NULL && next->kind == REPLY_TEXT && next->length < CURSOR_SIZE &&
                   names != NULL && names->kind == REPLY_ARRAY;
    if (!is_page) return fail_query_by_reply(query, server, page);
    reply_copy_text(next, cursor, CURSOR_SIZE);
    return inspect_page(query, server, names);
}

static int ask_locks(const query *query, command commands[]) {
    scan_command(query, "0", &commands[0]);
    return 1;
}

static dlock_status take_locks(query *query, server *server, reply *const replies[]) {
    char cursor[CURSOR_SIZE];
    dlock_status status = take_page(query, server, replies[0], cursor);
    while (status == DLOCK_OK && strcmp(cursor, "0") != 0 && !query->is_enough) {
        reply *page;
        command command = {0};
        scan_command(query, cursor, &command);
        status = exchange_commands(query, server, &command, 1, &page);
        if (status == DLOCK_OK) status = take_page(query, server, page, cursor);
        free(page);
    }
    return status;
}

const query_kind query_locks = {ask_locks, take_locks};

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

static int ask_info(const query *query, command commands[]) {
    (void)query;
    command_add_words(&commands[0], COMMAND_WORDS("INFO", "dlock"));
    return 1;
}

static dlock_status take_info(query *query, server *server, reply *const replies[]) {
    const reply *info = replies[0];
    if (info->kind != REPLY_TEXT) return fail_query_by_reply(query, server, info);
    query->is_found = false;
    for (const char *line = info->text; *line != '\0';) {
        size_t length = strcspn(line, "\r\n");
        tell_line(query, server->name, line, length);
        line += length + strspn(line + length, "\r\n");
    }
    return query->is_found ? DLOCK_OK
                           : fail_query(query, server, DLOCK_NO_MODULE, "INFO knows no dlock");
}

const query_kind query_info = {ask_info, take_info};

/* -- all servers */

typedef struct query_run {
    query *query;
    waiter waiter;
    size_t count;
    exchange each[]; /* one for each server */
} query_run;

/* NULL: no memory. */
static query_run *start_query(query *query, const query_kind *kind, const server_list *list) {
    command commands[QUERY_COMMANDS_MAX] = {{0}};
    int command_count = kind->ask(query, commands);
    query_run *run = calloc(1, sizeof(*run) + list->count * sizeof(run->each[0]));
    if (run == NULL) return NULL;
    run->query = query;
    run->count = list->count;
    loop_lock(query->deployment->loop);
    for (size_t i = 0; i < run->count; i++) {
        exchange *each = &run->each[i];
        *each = (exchange){.query = query,
                           .server = list->servers[i],
                           .waiter = &run->waiter,
                           .replies = each->first_replies};
        begin_exchange(each, commands, command_count);
    }
    loop_unlock(query->deployment->loop);
    return run;
}

/* Locked. Returns a server that has replied, or else one whose time is over. While the function of
 * the program ran, perhaps no thread has read replies. So before a server is given up, the sockets
 * are read once more. NULL: all are taken. */
static exchange *wait_for_server(query_run *run) {
    for (bool has_looked = false;; has_looked = true) {
        exchange *over = NULL;
        int64_t until_us = DEADLINE_NEVER;
        bool is_any_left = false;
        for (size_t i = 0; i < run->count; i++) {
            exchange *each = &run->each[i];
            if (each->is_taken) continue;
            if (each->is_done) return each;
            if (exchange_is_over(each)) over = each;
            until_us = deadline_earlier(until_us, exchange_end_us(each));
            is_any_left = true;
        }
        if (!is_any_left || (over != NULL && has_looked)) return over;
        if (over != NULL) until_us = loop_now_us(run->query->deployment->loop) + LOOK_US;
        wait_for_reply(run->query, &run->waiter, until_us);
    }
}

/* Waits for the next server, whichever it is, and tells. False: there is no other. */
static bool take_next(query_run *run, const query_kind *kind, dlock_status *status) {
    loop *loop = run->query->deployment->loop;
    loop_lock(loop);
    exchange *next = wait_for_server(run);
    if (next != NULL) *status = end_exchange(next);
    loop_unlock(loop);
    if (next == NULL) return false;
    next->is_taken = true;
    if (*status == DLOCK_OK) *status = kind->take(run->query, next->server, next->replies);
    return true;
}

/* Abandons what is still under way. */
static void end_query(query_run *run) {
    loop *loop = run->query->deployment->loop;
    loop_lock(loop);
    for (size_t i = 0; i < run->count; i++)
        if (!run->each[i].is_taken && !run->each[i].is_done)
            connection_abandon(&run->each[i].request);
    loop_unlock(loop);
    for (size_t i = 0; i < run->count; i++)
        for (int j = 0; j < run->each[i].count; j++)
            free(run->each[i].replies[j]);
    free(run);
}

/* Adds the cause to why, as a line. */
static void add_failure(query *query) {
    if (query->why == NULL || query->why_size == 0) return;
    for (char *end = strchr(query->cause, '\n'); end != NULL; end = strchr(end, '\n'))
        *end = ' ';
    if (query->why[0] != '\0') text_append(query->why, query->why_size, "\n");
    text_append(query->why, query->why_size, query->cause);
}

dlock_status query_all(query *query, const query_kind *kind, const server_list *list) {
    dlock_status failure = DLOCK_OK, status;
    bool is_majority_enough = query->is_majority_enough;
    size_t replied = 0;
    query->is_alone = list->count == 1;
    query_run *run = start_query(query, kind, list);
    if (run == NULL) {
        text_copy(query->cause, sizeof(query->cause), "no memory");
        return DLOCK_NO_MEMORY;
    }
    while ((is_majority_enough || failure == DLOCK_OK) && take_next(run, kind, &status)) {
        replied += status == DLOCK_OK;
        if (status == DLOCK_OK) continue;
        failure = status;
        if (is_majority_enough) add_failure(query);
    }
    end_query(run);
    return is_majority_enough && replied > list->count / 2 ? DLOCK_OK : failure;
}
