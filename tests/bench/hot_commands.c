/* SPDX-License-Identifier: BSD-3-Clause */
/* hot_commands.c - a command that asks for the lock, and one that gives it back.
 *
 * Both are words with blanks between them, of which "@" is the token: another one each time. After
 * a null the contender pauses at random, from the one time to below the other, and asks again. */
#include "hot.h"
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORDS_MAX = 16, TOKEN_SIZE = 36 + 1 };

typedef struct contender {
    wire wire;
    int number;
    long long tries;
    uint64_t chance;
    char token[TOKEN_SIZE];
    const char *acquire[WORDS_MAX], *release[WORDS_MAX];
} contender;

static int64_t pause_from_us, pause_below_us;
static const char *acquire_text, *release_text;

static void prepare(int port, char **arguments) {
    (void)port;
    pause_from_us = atol(arguments[0]);
    pause_below_us = atol(arguments[1]);
    acquire_text = arguments[2];
    release_text = arguments[3];
}

static void split(contender *c, const char *text, const char **words) {
    char *rest = strdup(text);
    size_t count = 0;
    for (char *word = strtok(rest, " "); word != NULL; word = strtok(NULL, " ")) {
        if (count + 1 == WORDS_MAX) wire_fail("the number of words");
        words[count++] = strcmp(word, "@") == 0 ? c->token : word;
    }
}

static void *open_contender(int port, int number) {
    contender *c = calloc(1, sizeof(*c));
    if (c == NULL) wire_fail("calloc");
    c->number = number;
    c->chance = 0x9e3779b97f4a7c15u * ((uint64_t)number + 1) ^ (uint64_t)wire_now_ns();
    split(c, acquire_text, c->acquire);
    split(c, release_text, c->release);
    wire_open(&c->wire, port);
    return c;
}

static void pause_at_random(contender *c) {
    errno = 0;
    if (pause_below_us <= pause_from_us) wire_fail("a null, and no pauses");
    c->chance ^= c->chance << 13;
    c->chance ^= c->chance >> 7;
    c->chance ^= c->chance << 17;
    uint64_t pause_ns = (uint64_t)pause_from_us * 1000 +
                        c->chance % (uint64_t)((pause_below_us - pause_from_us) * 1000);
    struct timespec pause = {.tv_sec = 0, .tv_nsec = (long)pause_ns};
    nanosleep(&pause, NULL);
}

static void acquire(void *data) {
    contender *c = data;
    snprintf(c->token, sizeof(c->token), "%012d%024lld", c->number, c->tries++);
    while (wire_ask(&c->wire, c->acquire).is_null)
        pause_at_random(c);
}

static void release(void *data) {
    contender *c = data;
    wire_reply reply = wire_ask(&c->wire, c->release);
    if (reply.kind == ':' && reply.number == 0) wire_fail("a release");
}

const hot_way hot_commands = {
    .name = "commands",
    .argument_count = 4,
    .arguments = "PAUSE_FROM_US PAUSE_BELOW_US ACQUIRE RELEASE",
    .prepare = prepare,
    .open = open_contender,
    .acquire = acquire,
    .release = release,
};
