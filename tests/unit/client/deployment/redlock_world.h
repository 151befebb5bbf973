/* SPDX-License-Identifier: BSD-3-Clause */
/* redlock_world.h - servers and a loop of the test's own, in place of net/: every command is
 * written down, replies come when the test says so, and time passes when the test says so. Link
 * without net/server.c, net/connection.c, net/loop.c and deployment/withdrawal.c. */
#ifndef DLOCK_REDLOCK_WORLD_H
#define DLOCK_REDLOCK_WORLD_H

#include "base/text.h"
#include "deployment/deployment.h"
#include "deployment/redlock.h"
#include "unit.h"
#include <stdlib.h>

enum { SERVERS = 5, SENT_MAX = 200, LEASE_MS = 10000, IO_MS = 200 };
enum { UNIX_US = 1000000000, START_US = 5000000 };

struct connection {
    bool is_ready;
};

typedef struct fake_server {
    server base;
    size_t index;
    bool is_skipped;    /* the circuit is open */
    bool is_connecting; /* requests are queued, not sent */
    bool is_held_up;    /* likewise, on a connection that is ready */
    bool is_overdue;    /* an older connection still owes replies */
    connection conn;
    request *pending; /* of the round: the only one, in this world */
    request *undo;    /* of the last undo */
} fake_server;

struct loop {
    heap timers;
};

typedef struct sent_command {
    size_t server;
    char text[200];       /* "ACQUIRE lock me 10000 1000010000" */
    bool is_waited_for;   /* with a request */
    bool is_on_same_conn; /* sent by connection_send() */
    bool is_behind;       /* sent by server_send_behind() */
} sent_command;

static struct {
    fake_server servers[SERVERS];
    size_t made, shares_left;
    size_t fail_at; /* server_new() fails for this one; 0: never */
    loop loop;
    int64_t now_us, unix_us;
    sent_command sent[SENT_MAX];
    size_t sent_count, seen_count; /* seen: by take_sent() */
    size_t withdrawn_count;
    char withdrawn[DLOCK_TOKEN_SIZE];
    deployment *redlock;
    attempt attempt;
    char token[DLOCK_TOKEN_SIZE];
    size_t done_count, on_sent_count, sent_at_on_sent;
} world;

/* -- the loop */

static int64_t world_now_us(const clock_source *clock) {
    (void)clock;
    return world.now_us;
}

static int64_t world_unix_us(const clock_source *clock) {
    (void)clock;
    return world.unix_us;
}

static const clock_source world_clock = {.now_us = world_now_us, .unix_us = world_unix_us};

const clock_source *loop_clock(const loop *loop) {
    (void)loop;
    return &world_clock;
}

int64_t loop_now_us(const loop *loop) {
    (void)loop;
    return world.now_us;
}

void loop_set_timer(loop *loop, loop_timer *timer, int64_t due_us) {
    heap_remove(&loop->timers, &timer->node);
    heap_add(&loop->timers, &timer->node, due_us);
}

void loop_clear_timer(loop *loop, loop_timer *timer) {
    heap_remove(&loop->timers, &timer->node);
}

void loop_ready(loop *loop, waiter *waiter) {
    (void)loop;
    waiter->is_ready = true;
}

static inline void pass_time(int64_t until_us) {
    heap_node *first;
    while ((first = heap_first(&world.loop.timers)) != NULL && first->due_us <= until_us) {
        loop_timer *timer = container_of(first, loop_timer, node);
        world.now_us = first->due_us;
        heap_remove(&world.loop.timers, first);
        timer->on_due(timer);
    }
    world.now_us = until_us;
}

/* -- servers */

server *server_new(const url *url, const server_options *options) {
    (void)url;
    (void)options;
    if (world.fail_at != 0 && world.made + 1 == world.fail_at) return NULL;
    fake_server *made = &world.servers[world.made];
    *made = (fake_server){.base.shares = 1, .index = world.made++, .conn.is_ready = true};
    made->base.name[0] = 's';
    made->base.name[1] = (char)('0' + made->index);
    world.shares_left++;
    return &made->base;
}

server *server_share(server *server) {
    server->shares++;
    world.shares_left++;
    return server;
}

void server_free(server *server) {
    if (server == NULL) return;
    server->shares--;
    world.shares_left--;
}

static inline fake_server *fake_of(server *server) {
    return container_of(server, fake_server, base);
}

bool server_is_available(server *server) {
    return !fake_of(server)->is_skipped;
}

static sent_command *note_sent(size_t server, const command *command) {
    sent_command *sent = &world.sent[world.sent_count++];
    if (world.sent_count > SENT_MAX) abort();
    *sent = (sent_command){.server = server};
    for (int i = 0; i < command->count; i++) {
        const char *word = i == 0 ? command->words[0] + strlen("DLOCK.") : command->words[i];
        if (strcmp(word, "PX") == 0 || strcmp(word, "FENCE") == 0) continue;
        if (i > 0) text_append(sent->text, sizeof(sent->text), " ");
        text_append(sent->text, sizeof(sent->text), word);
    }
    return sent;
}

/* The attempt does not wait for it. */
static bool take_undo(fake_server *fake, request *request) {
    bool is_undo = request != NULL && request->on_done != NULL &&
                   strncmp(world.sent[world.sent_count - 1].text, "RELEASE", 7) == 0 &&
                   world.attempt.operation == DLOCK_ACQUIRING;
    if (is_undo) fake->undo = request;
    return is_undo;
}

bool server_send(server *server, const command commands[], int count, request *request) {
    fake_server *fake = fake_of(server);
    CHECK_EQUAL(count, 1);
    sent_command *sent = note_sent(fake->index, &commands[0]);
    if (request == NULL || take_undo(fake, request)) return true;
    sent->is_waited_for = true;
    CHECK(fake->pending == NULL);
    fake->pending = request;
    request->conn = &fake->conn;
    request->sent_us = fake->is_connecting || fake->is_held_up ? 0 : world.now_us;
    return true;
}

void server_send_behind(server *server, const command *command) {
    const fake_server *fake = fake_of(server);
    if (fake->is_overdue) note_sent(fake->index, command)->is_behind = true;
}

bool connection_send(connection *conn, const command commands[], int count, request *request) {
    fake_server *server = container_of(conn, fake_server, conn);
    CHECK_EQUAL(count, 1);
    note_sent(server->index, &commands[0])->is_on_same_conn = true;
    CHECK(request == NULL || take_undo(server, request));
    return true;
}

bool connection_is_ready(const connection *conn) {
    return conn->is_ready && !container_of(conn, fake_server, conn)->is_connecting;
}

bool connection_abandon(request *request) {
    fake_server *server = container_of(request->conn, fake_server, conn);
    CHECK(server->pending == request);
    server->pending = NULL;
    request->conn = NULL;
    if (request->sent_us == 0) { /* taken back */
        for (size_t i = world.sent_count; i-- > 0;)
            if (world.sent[i].server == server->index) {
                world.sent[i].text[0] = '\0';
                break;
            }
    }
    return request->sent_us != 0;
}

void withdrawals_add(deployment *deployment, const attempt *withdrawn_attempt, uint32_t lease_ms) {
    const char *name = withdrawn_attempt->name, *token = withdrawn_attempt->token;
    CHECK(deployment == world.redlock && strcmp(name, "lock") == 0 && lease_ms == LEASE_MS);
    world.withdrawn_count++;
    text_copy(world.withdrawn, sizeof(world.withdrawn), token);
}

/* -- replies */

static request *take_pending(size_t index) {
    request *request = world.servers[index].pending;
    CHECK(request != NULL);
    world.servers[index].pending = NULL;
    if (request != NULL) request->conn = NULL;
    return request;
}

static void reply_with(size_t index, const reply *reply) {
    request *request = take_pending(index);
    if (request == NULL) return;
    request->on_reply(request, 0, reply);
    request->on_done(request, DLOCK_OK, "");
}

static inline void reply_integer(size_t index, int64_t integer) {
    reply_with(index, &(reply){.kind = REPLY_INTEGER, .integer = integer, .size = 1});
}

static inline void reply_nil(size_t index) {
    reply_with(index, &(reply){.kind = REPLY_NIL, .size = 1});
}

static inline void reply_error(size_t index, const char *text) {
    reply_with(index,
               &(reply){.kind = REPLY_ERROR, .text = text, .length = strlen(text), .size = 1});
}

/* DLOCK_UNREACHABLE: nothing was sent. DLOCK_IN_DOUBT: the connection broke. */
static inline void fail_request(size_t index, dlock_status status, const char *cause) {
    request *request = take_pending(index);
    if (request != NULL) request->on_done(request, status, cause);
}

/* The RELEASE of an undo: the reply, or no reply and a status. */
static inline void end_undo(size_t index, const reply *reply, dlock_status status) {
    request *request = world.servers[index].undo;
    CHECK(request != NULL);
    if (request == NULL) return;
    world.servers[index].undo = NULL;
    if (reply != NULL) request->on_reply(request, 0, reply);
    request->on_done(request, status, "");
}

/* -- the test's hands */

static void on_world_done(attempt *attempt) {
    CHECK(attempt == &world.attempt);
    world.done_count++;
    CHECK(heap_first(&world.loop.timers) == NULL);
    for (size_t i = 0; i < SERVERS; i++)
        CHECK(world.servers[i].pending == NULL);
}

static void on_world_sent(attempt *attempt) {
    (void)attempt;
    world.on_sent_count++;
    world.sent_at_on_sent = world.sent_count;
}

static void make_world(void) {
    static const topology five = {.kind = TOPOLOGY_REDLOCK, .count = SERVERS};
    memset(&world, 0, sizeof(world));
    world.now_us = START_US;
    world.unix_us = UNIX_US;
    server_options options = {.loop = &world.loop, .io_timeout_ms = IO_MS};
    world.redlock = redlock_new(&five, &options);
    CHECK(attempt_prepare(&world.attempt, world.redlock));
    text_copy(world.token, sizeof(world.token), "me");
    world.attempt.token = world.token;
}

static void end_world(void) {
    attempt_free(&world.attempt);
    world.redlock->table->free(world.redlock);
    CHECK_EQUAL(world.shares_left, 0);
}

static inline void start_for(dlock_operation operation, uint32_t lease_ms) {
    attempt *attempt = &world.attempt;
    attempt->operation = operation;
    attempt->name = "lock";
    attempt->lease_ms = lease_ms;
    attempt->limit_us = world.now_us + IO_MS * 1000;
    attempt->on_done = on_world_done;
    attempt->on_sent = operation == DLOCK_RELEASING ? on_world_sent : NULL;
    size_t done_before = world.done_count;
    deployment_start(world.redlock, attempt);
    CHECK(world.done_count == done_before);
}

static inline void start(dlock_operation operation) {
    start_for(operation, LEASE_MS);
}

/* Commands of this text that were sent since the last call, as "0134": to which servers. */
static inline const char *take_sent(const char *text) {
    static char servers[SENT_MAX + 1];
    size_t count = 0;
    for (size_t i = world.seen_count; i < world.sent_count; i++) {
        const sent_command *sent = &world.sent[i];
        if (sent->text[0] == '\0') continue;
        if (strcmp(sent->text, text) != 0) printf("    s%zu: %s\n", sent->server, sent->text);
        CHECK(strcmp(sent->text, text) == 0);
        servers[count++] = (char)('0' + sent->server);
    }
    servers[count] = '\0';
    world.seen_count = world.sent_count;
    return servers;
}

static inline void skip_sent(void) {
    world.seen_count = world.sent_count;
}

#define CHECK_SENT(text, expected) CHECK_TEXT(take_sent(text), expected)

static inline void check_result(dlock_status status, bool is_transient, const char *cause) {
    CHECK_EQUAL(world.done_count, 1);
    world.done_count = 0;
    CHECK_EQUAL(world.attempt.status, status);
    CHECK(world.attempt.is_transient == is_transient);
    CHECK_TEXT(world.attempt.cause, cause);
    CHECK_EQUAL(world.attempt.fate, TOKEN_UNHELD);
}

#endif
