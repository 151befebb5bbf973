/* SPDX-License-Identifier: BSD-3-Clause */
/* hot.c - contenders for one lock, who do nothing with it but give it back.
 *
 *   hot PORT CONTENDERS RUN_MS HOLD_US WAY [ARGUMENT...]
 *
 * Each contender is a thread: acquire, release, acquire, ... for RUN_MS, one of the ways of hot.h.
 * Whoever waits at the end of the run goes on until it has had the lock, so that no request stays
 * unanswered. That two hold the lock at once ends the program with an error; HOLD_US, for which
 * each keeps it, is 0 in a measurement and longer where this is to be tried.
 *
 * Prints how many requests all contenders have sent, as far as wire.c did it. Then a line for each
 * of them: acquisitions in all; how long it had waited when the run ended, 0 when it did not wait
 * then; and each wait that ended before, in nanoseconds. */
#include "hot.h"
#include "wire.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONTENDERS_MAX = 64, ARGUMENTS_BEFORE = 6 };

typedef struct contender {
    pthread_t thread;
    void *self; /* the way's own */
    long long acquisitions;
    int64_t unfinished_ns;
    int64_t *waits_ns;
    size_t wait_count, wait_capacity;
} contender;

static const hot_way *const ways[] = {&hot_commands, &hot_libdlock, &hot_redisson, &hot_blpop};
static const size_t way_count = sizeof(ways) / sizeof(ways[0]);

static const hot_way *way;
static contender contenders[CONTENDERS_MAX];
static pthread_barrier_t all_ready;
static useconds_t hold_us;
static int64_t end_ns; /* set before all are ready */
static atomic_int holders;

static void add_wait(contender *c, int64_t wait_ns) {
    if (c->wait_count == c->wait_capacity) {
        c->wait_capacity = c->wait_capacity == 0 ? 1024 : c->wait_capacity * 2;
        c->waits_ns = realloc(c->waits_ns, c->wait_capacity * sizeof(c->waits_ns[0]));
        if (c->waits_ns == NULL) wire_fail("realloc");
    }
    c->waits_ns[c->wait_count++] = wait_ns;
}

static void hold(void) {
    errno = 0;
    if (atomic_fetch_add(&holders, 1) != 0) wire_fail("two hold the lock at once");
    if (hold_us > 0) usleep(hold_us);
    atomic_fetch_sub(&holders, 1);
}

static void *contend(void *data) {
    contender *c = data;
    pthread_barrier_wait(&all_ready);
    int64_t asked_ns;
    while ((asked_ns = wire_now_ns()) < end_ns) {
        way->acquire(c->self);
        int64_t granted_ns = wire_now_ns();
        hold();
        if (granted_ns <= end_ns)
            add_wait(c, granted_ns - asked_ns);
        else
            c->unfinished_ns = end_ns - asked_ns;
        c->acquisitions++;
        way->release(c->self);
    }
    return NULL;
}

static void print_contender(const contender *c) {
    printf("%lld %lld", c->acquisitions, (long long)c->unfinished_ns);
    for (size_t i = 0; i < c->wait_count; i++)
        printf(" %lld", (long long)c->waits_ns[i]);
    printf("\n");
}

static const hot_way *find_way(int argc, char **argv) {
    for (size_t i = 0; argc >= ARGUMENTS_BEFORE && i < way_count; i++)
        if (strcmp(ways[i]->name, argv[ARGUMENTS_BEFORE - 1]) == 0 &&
            argc == ARGUMENTS_BEFORE + ways[i]->argument_count)
            return ways[i];
    fprintf(stderr, "usage: hot PORT CONTENDERS RUN_MS HOLD_US WAY...\n");
    for (size_t i = 0; i < way_count; i++)
        fprintf(stderr, "  %s %s\n", ways[i]->name, ways[i]->arguments);
    exit(2);
}

static void run(int count, int64_t run_ms) {
    pthread_barrier_init(&all_ready, NULL, (unsigned)count + 1);
    for (int i = 0; i < count; i++)
        if (pthread_create(&contenders[i].thread, NULL, contend, &contenders[i]) != 0)
            wire_fail("pthread_create");
    end_ns = wire_now_ns() + run_ms * 1000000;
    pthread_barrier_wait(&all_ready);
    for (int i = 0; i < count; i++)
        pthread_join(contenders[i].thread, NULL);
}

int main(int argc, char **argv) {
    way = find_way(argc, argv);
    int port = atoi(argv[1]), count = atoi(argv[2]);
    if (count < 1 || count > CONTENDERS_MAX) wire_fail("the number of contenders");
    hold_us = (useconds_t)atoi(argv[4]);
    way->prepare(port, argv + ARGUMENTS_BEFORE);
    for (int i = 0; i < count; i++)
        contenders[i].self = way->open(port, i);
    int64_t sent_before = wire_sent_count();
    run(count, atol(argv[3]));
    printf("%lld\n", (long long)(wire_sent_count() - sent_before));
    for (int i = 0; i < count; i++)
        print_contender(&contenders[i]);
    return 0;
}
