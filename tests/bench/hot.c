/* SPDX-License-Identifier: BSD-3-Clause */
/* hot.c - contenders for one lock, who do nothing with it but give it back.
 *
 *   hot PORT CONTENDERS RUN_MS PAUSE_FROM_US PAUSE_BELOW_US ACQUIRE RELEASE
 *
 * Each contender is a thread with a connection: acquire, release, acquire, ... for RUN_MS. After a
 * null it pauses at random, from the one time to below the other, and asks again. ACQUIRE and
 * RELEASE are requests as Redis reads them, with 36 times '@' where the token goes; every reply is
 * one line. Whoever waits at the end of the run goes on until it has had the lock, so that no
 * request stays unanswered.
 *
 * Prints a line for each contender: acquisitions in all; how long it had waited when the run ended,
 * 0 when it did not wait then; and each wait that ended before, in nanoseconds. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONTENDERS_MAX = 64, TOKEN_LENGTH = 36, REPLY_MAX = 64 };
#define TOKEN_MARK "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@"

typedef struct request {
    char *bytes;
    size_t size;
    char *token; /* where it stands among the bytes */
} request;

typedef struct contender {
    pthread_t thread;
    int number;
    int fd;
    uint64_t chance;
    request acquire, release;
    long long acquisitions;
    int64_t unfinished_ns;
    int64_t *waits_ns;
    size_t wait_count, wait_capacity;
} contender;

static contender contenders[CONTENDERS_MAX];
static pthread_barrier_t all_ready;
static int64_t pause_from_us, pause_below_us;
static int64_t end_ns; /* set before all are ready */

static void fail(const char *what) {
    fprintf(stderr, "hot: %s: %s\n", what, errno == 0 ? "not as expected" : strerror(errno));
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static request copy_request(const char *text) {
    request copy = {.bytes = strdup(text), .size = strlen(text)};
    if (copy.bytes == NULL) fail("strdup");
    copy.token = strstr(copy.bytes, TOKEN_MARK);
    if (copy.token == NULL) fail("a request without a token");
    return copy;
}

static int connect_to(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int on = 1;
    if (fd < 0) fail("socket");
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

/* Sends the request and waits for its answer: true, or false for a null. */
static bool ask(contender *c, const request *asked) {
    char reply[REPLY_MAX];
    size_t length = 0;
    errno = 0;
    if (send(c->fd, asked->bytes, asked->size, MSG_NOSIGNAL) != (ssize_t)asked->size) fail("send");
    do {
        ssize_t received = recv(c->fd, reply + length, sizeof(reply) - length, 0);
        if (received <= 0) fail("recv");
        length += (size_t)received;
    } while (reply[length - 1] != '\n' && length < sizeof(reply));
    if (strncmp(reply, "$-1", 3) == 0) return false;
    if (reply[0] == '-' || strncmp(reply, ":0\r", 3) == 0) fail("a reply");
    return true;
}

static void take_new_token(contender *c) {
    char token[TOKEN_LENGTH + 1];
    snprintf(token, sizeof(token), "%012d%024lld", c->number, c->acquisitions);
    memcpy(c->acquire.token, token, TOKEN_LENGTH);
    memcpy(c->release.token, token, TOKEN_LENGTH);
}

static void pause_at_random(contender *c) {
    if (pause_below_us <= pause_from_us) fail("a null, and no pauses");
    c->chance ^= c->chance << 13;
    c->chance ^= c->chance >> 7;
    c->chance ^= c->chance << 17;
    uint64_t pause_ns = (uint64_t)pause_from_us * 1000 +
                        c->chance % (uint64_t)((pause_below_us - pause_from_us) * 1000);
    struct timespec pause = {.tv_sec = 0, .tv_nsec = (long)pause_ns};
    nanosleep(&pause, NULL);
}

static void add_wait(contender *c, int64_t wait_ns) {
    if (c->wait_count == c->wait_capacity) {
        c->wait_capacity = c->wait_capacity == 0 ? 1024 : c->wait_capacity * 2;
        c->waits_ns = realloc(c->waits_ns, c->wait_capacity * sizeof(c->waits_ns[0]));
        if (c->waits_ns == NULL) fail("realloc");
    }
    c->waits_ns[c->wait_count++] = wait_ns;
}

static void *contend(void *data) {
    contender *c = data;
    pthread_barrier_wait(&all_ready);
    int64_t asked_ns;
    while ((asked_ns = now_ns()) < end_ns) {
        take_new_token(c);
        while (!ask(c, &c->acquire))
            pause_at_random(c);
        int64_t granted_ns = now_ns();
        if (granted_ns <= end_ns)
            add_wait(c, granted_ns - asked_ns);
        else
            c->unfinished_ns = end_ns - asked_ns;
        c->acquisitions++;
        if (!ask(c, &c->release)) fail("a release");
    }
    return NULL;
}

static void print_contender(const contender *c) {
    printf("%lld %lld", c->acquisitions, (long long)c->unfinished_ns);
    for (size_t i = 0; i < c->wait_count; i++)
        printf(" %lld", (long long)c->waits_ns[i]);
    printf("\n");
}

int main(int argc, char **argv) {
    int count = argc == 8 ? atoi(argv[2]) : 0;
    if (count < 1 || count > CONTENDERS_MAX) {
        fprintf(stderr, "usage: hot PORT CONTENDERS RUN_MS PAUSE_FROM_US PAUSE_BELOW_US "
                        "ACQUIRE RELEASE\n");
        return 2;
    }
    pause_from_us = atol(argv[4]);
    pause_below_us = atol(argv[5]);
    pthread_barrier_init(&all_ready, NULL, (unsigned)count + 1);
    for (int i = 0; i < count; i++) {
        contender *c = &contenders[i];
        c->number = i;
        c->chance = 0x9e3779b97f4a7c15u * ((uint64_t)i + 1) ^ (uint64_t)now_ns();
        c->fd = connect_to(atoi(argv[1]));
        c->acquire = copy_request(argv[6]);
        c->release = copy_request(argv[7]);
        if (pthread_create(&c->thread, NULL, contend, c) != 0) fail("pthread_create");
    }
    end_ns = now_ns() + atol(argv[3]) * 1000000;
    pthread_barrier_wait(&all_ready);
    for (int i = 0; i < count; i++)
        pthread_join(contenders[i].thread, NULL);
    for (int i = 0; i < count; i++)
        print_contender(&contenders[i]);
    return 0;
}
