/* SPDX-License-Identifier: BSD-3-Clause */
/* redlock_test.c - many locks extended at several servers at once: each has its own majority. The
 * rest of the backend is tested against real servers, in tests/client/test_redlock.py. */
#include "redlock.h"

#include "deadline.h"
#include "unit.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <unistd.h>

enum { NODES = 3, CLAIMS = 4, LEASE_MS = 5000, LONG_MS = 20000 };

/* A server that is asked to extend locks 0, 1, 2 ... and says yes to some. */
typedef struct node {
    int listener, port;
    unsigned yes; /* one bit a lock */
    pthread_t thread;
} node;

static node servers[NODES];
static claim claims[CLAIMS];
static dlock_status outcomes[CLAIMS];

static void answer(const node *by, int fd, const char *request) {
    static const char before_name[] = "DLOCK.EXTEND\r\n$1\r\n";
    for (const char *at = request; (at = strstr(at, before_name)) != NULL; at++) {
        int lock = at[strlen(before_name)] - '0';
        const char *said = by->yes & (1u << lock) ? ":1\r\n" : ":0\r\n";
        if (write(fd, said, 4) != 4) return;
    }
}

/* One connection is all it takes. */
static void *serve(void *data) {
    node *self = data;
    char request[4096];
    int fd = accept(self->listener, NULL, NULL);
    ssize_t size;
    while (fd >= 0 && (size = read(fd, request, sizeof(request) - 1)) > 0) {
        request[size] = '\0';
        answer(self, fd, request);
    }
    if (fd >= 0) close(fd);
    return NULL;
}

static void open_node(node *to) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    to->listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(to->listener, (struct sockaddr *)&at, size) == 0);
    CHECK(getsockname(to->listener, (struct sockaddr *)&at, &size) == 0);
    to->port = ntohs(at.sin_port);
}

/* said: for each node the locks that it says yes to; NULL: nobody listens there. */
static void extend_all(const char *const said[NODES]) {
    deployment where = {.kind = DEPLOYMENT_REDLOCK, .count = NODES};
    server_limits limits = {.connect_timeout_ms = LONG_MS, .io_timeout_ms = LONG_MS, .pool_max = 4};
    const environment *env = environment_system();
    claim *all[CLAIMS];
    for (int i = 0; i < NODES; i++) {
        servers[i] = (node){0};
        open_node(&servers[i]);
        snprintf(where.servers[i].host, sizeof(where.servers[i].host), "127.0.0.1");
        where.servers[i].port = servers[i].port;
        for (const char *lock = said[i]; lock != NULL && *lock != '\0'; lock++)
            servers[i].yes |= 1u << (*lock - '0');
        if (said[i] == NULL) continue;
        CHECK(listen(servers[i].listener, 1) == 0);
        pthread_create(&servers[i].thread, NULL, serve, &servers[i]);
    }
    static const char *const names[CLAIMS] = {"0", "1", "2", "3"};
    for (int i = 0; i < CLAIMS; i++) {
        claims[i] = (claim){.call = {.name = names[i], .token = "me", .lease_ms = LEASE_MS}};
        all[i] = &claims[i];
    }
    backend *made = redlock_new(&where, &limits, env);
    int64_t limit_us = deadline_after_ms(env->now_us(env), LONG_MS);
    made->table->extend_all(made, all, outcomes, CLAIMS, &(interrupt){.fd = -1}, limit_us);
    made->table->free(made);
    for (int i = 0; i < NODES; i++) {
        if (said[i] != NULL) pthread_join(servers[i].thread, NULL);
        close(servers[i].listener);
    }
}

#define EXTEND_ALL(...) extend_all((const char *const[NODES]){__VA_ARGS__})

static void each_lock_is_decided_by_its_own_majority(void) {
    EXTEND_ALL("0123", "013", "02");
    CHECK_EQUAL(outcomes[0], DLOCK_OK);
    CHECK_EQUAL(outcomes[1], DLOCK_OK);
    CHECK_EQUAL(outcomes[2], DLOCK_OK);
    CHECK_EQUAL(outcomes[3], DLOCK_OK);
    EXTEND_ALL("01", "0", "03");
    CHECK_EQUAL(outcomes[0], DLOCK_OK);
    CHECK_EQUAL(outcomes[1], DLOCK_LOST);
    CHECK_EQUAL(outcomes[2], DLOCK_LOST);
    CHECK_EQUAL(outcomes[3], DLOCK_LOST);
    CHECK(!claims[1].is_passing);
    CHECK(strcmp(claims[1].call.cause, "1 ok, 2 not held") == 0);
}

static void the_lease_is_counted_from_before_it_was_asked_for(void) {
    const environment *env = environment_system();
    int64_t before_us = env->now_us(env);
    EXTEND_ALL("0123", "0123", "0123");
    for (int i = 0; i < CLAIMS; i++) {
        CHECK(claims[i].call.asked_us >= before_us);
        CHECK(claims[i].call.asked_us <= env->now_us(env));
        CHECK(claims[i].call.cause[0] == '\0');
    }
}

static void a_majority_does_without_the_rest(void) {
    EXTEND_ALL("01", NULL, "02");
    CHECK_EQUAL(outcomes[0], DLOCK_OK);
    CHECK_EQUAL(outcomes[1], DLOCK_NO_QUORUM);
    CHECK_EQUAL(outcomes[2], DLOCK_NO_QUORUM);
    CHECK_EQUAL(outcomes[3], DLOCK_LOST);
    CHECK(claims[1].is_passing);
    CHECK(strstr(claims[1].call.cause, "1 ok, 1 not held, 1 unreachable: 127.0.0.1:") != NULL);
    CHECK(strstr(claims[1].call.cause, "Connection refused") != NULL);
}

static void too_few_are_there(void) {
    EXTEND_ALL(NULL, NULL, "0123");
    for (int i = 0; i < CLAIMS; i++) {
        CHECK_EQUAL(outcomes[i], DLOCK_NO_QUORUM);
        CHECK(claims[i].is_passing);
    }
}

int main(void) {
    UNIT_RUN(each_lock_is_decided_by_its_own_majority);
    UNIT_RUN(the_lease_is_counted_from_before_it_was_asked_for);
    UNIT_RUN(a_majority_does_without_the_rest);
    UNIT_RUN(too_few_are_there);
    return unit_summary();
}
