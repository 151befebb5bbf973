/* SPDX-License-Identifier: BSD-3-Clause */
/* routed_world.h - a routed deployment in front of the scripted server of net_world.h. The router
 * is the test's own: it knows servers A and B, which are different for the deployment, and the same
 * scripted server. The id of a session is random, and is heard as ID. */
#ifndef DLOCK_ROUTED_WORLD_H
#define DLOCK_ROUTED_WORLD_H

#include "single_thread.h"

#include "deployment/deployment.h"
#include "deployment/presence.h"

enum { LEASE_MS = 10000, WAIT_MS = 5000, SESSION_MS = 9000 };

#define NAME       "lock"
#define OTHER_NAME "door"
#define TOKEN      "me"
#define ACQUIRE    "DLOCK.ACQUIRE lock me PX 10000"
#define EXTEND     "DLOCK.EXTEND lock me PX 10000"
#define RELEASE    "DLOCK.RELEASE lock me"
#define SESSION    "DLOCK.SESSION ID PX 9000"

/* Replies to SESSION, of a session with the number 1. */
#define EVENTS(count)          "*2\r\n:1\r\n*" count "\r\n"
#define EVENT(count, n, kind)  "*" count "\r\n:" n "\r\n+" kind "\r\n$4\r\nlock\r\n$2\r\nme\r\n"
#define GRANTED(n, fence, age) EVENT("6", n, "granted") ":" fence "\r\n:" age "\r\n"
#define ENDED(n, why)          EVENT("5", n, "ended") "+" why "\r\n"
#define LOST(n, why)           EVENT("5", n, "lost") "+" why "\r\n"

static struct {
    router router;
    server_options options;
    server *a, *b;
    server *known; /* found by the router; NULL: none */
    server *next;  /* where a redirect leads to */
    int follows;
    redirect followed;
    deployment *deployment;
    attempt attempt;
    char token[DLOCK_TOKEN_SIZE];
    tie tie;
    int done_count, sent_count;
} stage;

static inline server *stage_find(router *router, const char *name) {
    (void)router;
    CHECK(strcmp(name, NAME) == 0 || strcmp(name, OTHER_NAME) == 0 || name[0] == '\0');
    return stage.known;
}

static inline server *stage_follow(router *router, server *sender, const redirect *redirect) {
    (void)router;
    CHECK(sender == stage.a || sender == stage.b);
    stage.follows++;
    stage.followed = *redirect;
    return stage.next;
}

static inline void stage_free(router *router) {
    (void)router;
    server_free(stage.a);
    server_free(stage.b);
}

static const router_table stage_table = {
    .find = stage_find, .follow = stage_follow, .free = stage_free};

static inline void on_stage_done(attempt *attempt) {
    CHECK(attempt == &stage.attempt);
    stage.done_count++;
}

static inline void on_stage_sent(attempt *attempt) {
    CHECK(attempt == &stage.attempt);
    stage.sent_count++;
}

static inline void begin_stage(void) {
    begin();
    memset(&stage, 0, sizeof(stage));
    stage.options = (server_options){.loop = world.loop,
                                     .connect_timeout_ms = CONNECT_MS,
                                     .io_timeout_ms = IO_MS,
                                     .command_count = &world.command_count};
    router_init(&stage.router, &stage_table, &stage.options);
    stage.known = stage.a = server_new(&world.url, &stage.options);
    stage.next = stage.b = server_new(&world.url, &stage.options);
    stage.deployment = &stage.router.base;
    stage.deployment->session_ms = SESSION_MS;
    CHECK(attempt_prepare(&stage.attempt, stage.deployment));
    text_copy(stage.token, sizeof(stage.token), TOKEN);
    stage.attempt.token = stage.token;
    stage.attempt.name = NAME;
    stage.attempt.lease_ms = LEASE_MS;
    stage.attempt.on_done = on_stage_done;
    stage.attempt.on_sent = on_stage_sent;
}

static inline void need_replicas(uint32_t count) {
    stage.attempt.terms.min_replicas = count;
    stage.attempt.terms.replica_timeout_ms = 100;
    attempt_free(&stage.attempt);
    CHECK(attempt_prepare(&stage.attempt, stage.deployment));
}

/* Within an I/O timeout: else the clock stops, and the test with it. */
static inline void withdraw(const char *token, uint32_t lease_ms) {
    attempt withdrawn = {.name = NAME, .token = (char *)token};
    withdrawals_add(stage.deployment, &withdrawn, lease_ms);
}

static inline void finish_withdrawals(void) {
    world.until_us = world.now_us + IO_MS * 1000;
    withdrawals_finish(stage.deployment);
}

static inline void end_stage(void) {
    presence_leave(&stage.tie.guest);
    life_free(stage.tie.life);
    attempt_free(&stage.attempt);
    finish_withdrawals();
    stage.deployment->table->free(stage.deployment);
    end();
}

/* limit_ms from now on. The attempt does not end from within. */
static inline void start(dlock_operation operation, int64_t wait_ms, int64_t limit_ms) {
    attempt *attempt = &stage.attempt;
    attempt->operation = operation;
    attempt->wait_until_us = wait_ms > 0 ? world.now_us + wait_ms * 1000 : 0;
    attempt->limit_us = world.now_us + limit_ms * 1000;
    stage.done_count = 0;
    deployment_start(stage.deployment, attempt);
    CHECK_EQUAL(stage.done_count, 0);
    settle();
}

static inline void start_acquire(int64_t wait_ms) {
    start(DLOCK_ACQUIRING, wait_ms, wait_ms + IO_MS);
}

static inline void end_discovery(dlock_status failure, const char *cause) {
    router_tell_waits(&stage.router, failure, cause);
    settle();
}

/* Each id of a session is replaced by ID. */
static inline void hide_ids(char *text) {
    static const char digits[] = "0123456789abcdef";
    enum { ID_DIGITS = 32 };
    for (char *word = text; *word != '\0'; word++) {
        if (strspn(word, digits) != ID_DIGITS) continue;
        memcpy(word, "ID", 2);
        memmove(word + 2, word + ID_DIGITS, strlen(word + ID_DIGITS) + 1);
    }
}

/* Since the last call. */
static inline void check_heard(int index, const char *expected, const char *file, int line) {
    char *heard = link_at(index)->heard;
    hide_ids(heard);
    unit_check_text(heard, expected, file, line, "heard");
    heard[0] = '\0';
}

#define CHECK_HEARD(index, expected) check_heard(index, expected, __FILE__, __LINE__)

/* The session is opened on this connection, and its next call is parked. */
static inline void open_session(int index) {
    CHECK_HEARD(index, SESSION);
    say(index, EVENTS("0"));
    CHECK_HEARD(index, SESSION);
}

/* Link 0: the command connection. Link 1: the session. */
static inline void wait_in_queue(int64_t wait_ms) {
    start_acquire(wait_ms);
    say(0, "$-1\r\n");
    open_session(1);
    say(0, "+QUEUED\r\n");
}

static inline void check_done(dlock_status status, bool is_transient, const char *file, int line) {
    unit_check_equal(stage.done_count, 1, file, line, "done");
    unit_check_equal(stage.attempt.status, status, file, line, "status");
    unit_check_equal(stage.attempt.is_transient, is_transient, file, line, "is_transient");
}

#define CHECK_DONE(status, is_transient) check_done(status, is_transient, __FILE__, __LINE__)

static inline void check_cause(const char *expected, const char *file, int line) {
    char text[CAUSE_SIZE];
    snprintf(text, sizeof(text), "%s: %s", the_peer.path, expected);
    unit_check_text(stage.attempt.cause, text, file, line, "cause");
}

#define CHECK_CAUSE(expected) check_cause(expected, __FILE__, __LINE__)
#define CHECK_NEW_TOKEN()     CHECK(strcmp(stage.attempt.token, TOKEN) != 0)

#endif
