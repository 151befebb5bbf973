/* SPDX-License-Identifier: BSD-3-Clause */
/* hot_redisson.c - waiting for a message, as lock() and unlock() of Redisson 4.7 do it on a single
 * server, with its defaults.
 *
 *   acquire   a script: take the lock, a hash of owner and depth, or return what is left of its
 *             lease. When it is busy: subscribe to the lock's channel, try again; as long as that
 *             fails, wait for a message, for the rest of the lease at most, and try again.
 *             Unsubscribe
 *   release   a script: count down; at zero delete the lock and publish a message. It notes its
 *             result under a key of this request, for a repetition; that is deleted afterwards,
 *             and nobody waits for the answer
 *
 * A process has one subscription to the channel however many of its threads wait: the first makes
 * it, the last ends it without waiting for the answer. A message adds one to a semaphore, so wakes
 * one thread of each process; whoever asks in between gets the lock. Replies and messages alike
 * come to threads for input, which wake whoever waits for them: it matters who is woken first. */
#include "hot.h"
#include "wire.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#define LOCK     "hot"
#define CHANNEL  "redisson_lock__channel:{hot}"
#define LATCH    "redisson_unlock_latch:{hot}"
#define LEASE_MS "30000"
#define LATCH_MS "20000"
#define UNLOCKED "0" /* the message */

enum { EVENTS_MAX = 64, OWNER_SIZE = 64, LATCH_SIZE = 96, SHA_SIZE = WIRE_TEXT };

typedef struct contender {
    wire wire;
    wire aside; /* for requests whose replies nobody waits for */
    sem_t replies;
    int number;
    long long releases;
    char owner[OWNER_SIZE];
} contender;

static const char acquire_script[] =
    "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then\n"
    "    redis.call('hincrby', KEYS[1], ARGV[2], 1)\n"
    "    redis.call('pexpire', KEYS[1], ARGV[1])\n"
    "    return nil\n"
    "end\n"
    "return redis.call('pttl', KEYS[1])\n";

/* 1: released, 0: one level less, nil: not the owner. */
static const char release_script[] =
    "local noted = redis.call('get', KEYS[3])\n"
    "if noted ~= false then return tonumber(noted) end\n"
    "if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end\n"
    "local depth = redis.call('hincrby', KEYS[1], ARGV[3], -1)\n"
    "if depth > 0 then\n"
    "    redis.call('pexpire', KEYS[1], ARGV[2])\n"
    "    redis.call('set', KEYS[3], 0, 'px', ARGV[5])\n"
    "    return 0\n"
    "end\n"
    "redis.call('del', KEYS[1])\n"
    "redis.call(ARGV[4], KEYS[2], ARGV[1])\n"
    "redis.call('set', KEYS[3], 1, 'px', ARGV[5])\n"
    "return 1\n";

static int replies_fd; /* epoll, of all contenders */
static char acquire_sha[SHA_SIZE], release_sha[SHA_SIZE];

/* The subscription that the threads share. */
static struct {
    wire wire;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    enum { ABSENT, JOINING, JOINED, LEAVING } state;
    int users;
    sem_t messages;
} channel = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *listen_to_replies(void *unused) {
    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int ready = epoll_wait(replies_fd, events, EVENTS_MAX, -1);
        for (int i = 0; i < ready; i++)
            sem_post(&((contender *)events[i].data.ptr)->replies);
    }
    return unused;
}

static wire_reply ask(contender *c, const char *const *words) {
    wire_send(&c->wire, words);
    while (sem_wait(&c->replies) != 0) {
    }
    return wire_read(&c->wire);
}

static void *listen_to_channel(void *unused) {
    for (;;) {
        wire_reply reply = wire_read(&channel.wire);
        if (strcmp(reply.text, "message") == 0) {
            sem_post(&channel.messages);
            continue;
        }
        pthread_mutex_lock(&channel.mutex);
        channel.state = strcmp(reply.text, "subscribe") == 0 ? JOINED : ABSENT;
        pthread_cond_broadcast(&channel.changed);
        pthread_mutex_unlock(&channel.mutex);
    }
    return unused;
}

static void subscribe(void) {
    pthread_mutex_lock(&channel.mutex);
    while (channel.state == LEAVING)
        pthread_cond_wait(&channel.changed, &channel.mutex);
    channel.users++;
    if (channel.state == ABSENT) {
        sem_init(&channel.messages, 0, 0);
        channel.state = JOINING;
        wire_send(&channel.wire, WORDS("SUBSCRIBE", CHANNEL));
    }
    while (channel.state == JOINING)
        pthread_cond_wait(&channel.changed, &channel.mutex);
    pthread_mutex_unlock(&channel.mutex);
}

static void unsubscribe(void) {
    pthread_mutex_lock(&channel.mutex);
    if (--channel.users == 0) {
        channel.state = LEAVING;
        wire_send(&channel.wire, WORDS("UNSUBSCRIBE", CHANNEL));
    }
    pthread_mutex_unlock(&channel.mutex);
}

static void wait_for_message(int64_t ttl_ms) {
    int64_t until_ns = wire_now_ns() + ttl_ms * 1000000;
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    while (sem_clockwait(&channel.messages, CLOCK_MONOTONIC, &until) != 0 && errno == EINTR) {
    }
}

static void prepare(int port, char **arguments) {
    (void)arguments;
    wire w;
    pthread_t listeners[2];
    wire_open(&w, port);
    strcpy(acquire_sha, wire_ask(&w, WORDS("SCRIPT", "LOAD", acquire_script)).text);
    strcpy(release_sha, wire_ask(&w, WORDS("SCRIPT", "LOAD", release_script)).text);
    wire_open(&channel.wire, port);
    replies_fd = epoll_create1(0);
    if (replies_fd < 0 || pthread_create(&listeners[0], NULL, listen_to_channel, NULL) != 0 ||
        pthread_create(&listeners[1], NULL, listen_to_replies, NULL) != 0)
        wire_fail("the threads for input");
}

static void *open_contender(int port, int number) {
    contender *c = calloc(1, sizeof(*c));
    if (c == NULL) wire_fail("calloc");
    c->number = number;
    snprintf(c->owner, sizeof(c->owner), "%036d:%d", 0, number);
    sem_init(&c->replies, 0, 0);
    wire_open(&c->aside, port);
    wire_open(&c->wire, port);
    struct epoll_event wanted = {.events = EPOLLIN | EPOLLET, .data.ptr = c};
    if (epoll_ctl(replies_fd, EPOLL_CTL_ADD, c->wire.fd, &wanted) != 0) wire_fail("epoll_ctl");
    return c;
}

static wire_reply try_acquire(contender *c) {
    return ask(c, WORDS("EVALSHA", acquire_sha, "1", LOCK, LEASE_MS, c->owner));
}

static void acquire(void *data) {
    contender *c = data;
    if (try_acquire(c).is_null) return;
    subscribe();
    wire_reply busy;
    while (!(busy = try_acquire(c)).is_null)
        wait_for_message(busy.number);
    unsubscribe();
}

static void release(void *data) {
    contender *c = data;
    char latch[LATCH_SIZE];
    snprintf(latch, sizeof(latch), LATCH ":%016d%016lld", c->number, c->releases++);
    wire_reply reply = ask(c, WORDS("EVALSHA", release_sha, "3", LOCK, CHANNEL, latch, UNLOCKED,
                                    LEASE_MS, c->owner, "PUBLISH", LATCH_MS));
    if (reply.is_null || reply.number != 1) wire_fail("a release");
    wire_tell(&c->aside, WORDS("DEL", latch));
}

const hot_way hot_redisson = {
    .name = "redisson",
    .argument_count = 0,
    .arguments = "",
    .prepare = prepare,
    .open = open_contender,
    .acquire = acquire,
    .release = release,
};
