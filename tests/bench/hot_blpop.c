/* SPDX-License-Identifier: BSD-3-Clause */
/* hot_blpop.c - waiting on a list, as python-redis-lock 4.0.1 does it with expire=30.
 *
 *   acquire   GET, to see that this object does not hold the lock already; then SET NX EX, and as
 *             long as that is refused, BLPOP from the list of signals and SET NX EX again
 *   release   a script: if the lock is ours, leave exactly one signal in the list, for a second,
 *             and delete the lock
 *
 * A signal wakes one of those who wait, but does not give it the lock: whoever comes in between
 * gets it. The BLPOP ends after the lock's lease at the latest. */
#include "hot.h"
#include "wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOCK      "lock:hot"
#define SIGNAL    "lock-signal:hot"
#define LEASE_S   "30"
#define SIGNAL_MS "1000"

enum { ID_SIZE = 24 + 1, SHA_SIZE = WIRE_TEXT };

typedef struct contender {
    wire wire;
    char id[ID_SIZE];
} contender;

/* 0 when the lock was ours, 1 when it was not. */
static const char release_script[] = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 1 end\n"
                                     "redis.call('del', KEYS[2])\n"
                                     "redis.call('lpush', KEYS[2], 1)\n"
                                     "redis.call('pexpire', KEYS[2], ARGV[2])\n"
                                     "redis.call('del', KEYS[1])\n"
                                     "return 0\n";
static char release_sha[SHA_SIZE];

static void prepare(int port, char **arguments) {
    (void)arguments;
    wire w;
    wire_open(&w, port);
    strcpy(release_sha, wire_ask(&w, WORDS("SCRIPT", "LOAD", release_script)).text);
}

static void *open_contender(int port, int number) {
    contender *c = calloc(1, sizeof(*c));
    if (c == NULL) wire_fail("calloc");
    snprintf(c->id, sizeof(c->id), "%024d", number);
    wire_open(&c->wire, port);
    return c;
}

static void acquire(void *data) {
    contender *c = data;
    if (strcmp(wire_ask(&c->wire, WORDS("GET", LOCK)).text, c->id) == 0) wire_fail("GET");
    while (wire_ask(&c->wire, WORDS("SET", LOCK, c->id, "EX", LEASE_S, "NX")).is_null)
        wire_ask(&c->wire, WORDS("BLPOP", SIGNAL, LEASE_S));
}

static void release(void *data) {
    contender *c = data;
    const char *const *words = WORDS("EVALSHA", release_sha, "2", LOCK, SIGNAL, c->id, SIGNAL_MS);
    if (wire_ask(&c->wire, words).number != 0) wire_fail("a release");
}

const hot_way hot_blpop = {
    .name = "blpop",
    .argument_count = 0,
    .arguments = "",
    .prepare = prepare,
    .open = open_contender,
    .acquire = acquire,
    .release = release,
};
