/* SPDX-License-Identifier: BSD-3-Clause */
/* delay.c - a network between a client and servers on one machine: what is sent arrives later.
 *
 *   delay DELAY_US LISTEN_PORT:TARGET_PORT ...
 *
 * Each direction of each connection is delayed by so much. Prints a line when it listens, and runs
 * until it is killed. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LISTENERS_MAX = 16, ENDS_MAX = 1024, CHUNKS_MAX = 64, CHUNK_SIZE = 4096 };

typedef struct chunk {
    long long due_us;
    size_t size; /* 0: the end */
    char bytes[CHUNK_SIZE];
} chunk;

/* One end of a connection, and what is on its way to it. The other end is beside it: 0 and 1, 2 and
 * 3 ... */
typedef struct end {
    int fd; /* 0: free */
    bool is_closed;
    chunk queue[CHUNKS_MAX];
    size_t first, count;
} end;

static struct { int fd, target; } listeners[LISTENERS_MAX];
static int listener_count;
static end ends[ENDS_MAX];
static long long delay_us;

static long long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static struct sockaddr_in local(int port) {
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static bool add_listener(const char *pair) {
    int port, target, on = 1;
    if (sscanf(pair, "%d:%d", &port, &target) != 2) return false;
    struct sockaddr_in at = local(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(fd, 64) != 0) return false;
    listeners[listener_count].fd = fd;
    listeners[listener_count++].target = target;
    return true;
}

static void set_end(end *to, int fd) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    to->fd = fd;
    to->is_closed = false;
    to->first = to->count = 0;
}

static void free_pair(end *pair) {
    if (pair[0].fd == 0 || !pair[0].is_closed || !pair[1].is_closed) return;
    for (int i = 0; i < 2; i++) {
        close(pair[i].fd);
        pair[i].fd = 0;
    }
}

static void accept_one(int which) {
    struct sockaddr_in to = local(listeners[which].target);
    int near = accept(listeners[which].fd, NULL, NULL), far = socket(AF_INET, SOCK_STREAM, 0);
    int at = 0;
    while (at < ENDS_MAX && ends[at].fd != 0)
        at += 2;
    if (near < 0 || at == ENDS_MAX || connect(far, (struct sockaddr *)&to, sizeof(to))) exit(1);
    set_end(&ends[at], near);
    set_end(&ends[at + 1], far);
}

static void read_some(int which) {
    end *from = &ends[which], *to = &ends[which ^ 1];
    if (to->count == CHUNKS_MAX) exit(1);
    chunk *next = &to->queue[(to->first + to->count++) % CHUNKS_MAX];
    ssize_t size = read(from->fd, next->bytes, CHUNK_SIZE);
    next->size = size > 0 ? (size_t)size : 0;
    next->due_us = now_us() + delay_us;
    from->is_closed = size <= 0;
}

/* The result is when the next one is due; negative: none. */
static long long deliver(end *to) {
    while (to->count > 0) {
        chunk *next = &to->queue[to->first];
        if (next->due_us > now_us()) return next->due_us;
        if (next->size == 0)
            shutdown(to->fd, SHUT_WR);
        else if (write(to->fd, next->bytes, next->size) != (ssize_t)next->size)
            to->is_closed = true;
        to->first = (to->first + 1) % CHUNKS_MAX;
        to->count--;
    }
    return -1;
}

static void wait_for(long long due_us, struct pollfd *polled, nfds_t count) {
    long long left_us = due_us < 0 ? 1000000 : due_us - now_us();
    struct timespec left = {.tv_sec = left_us / 1000000, .tv_nsec = left_us % 1000000 * 1000};
    if (left_us < 0) left = (struct timespec){0};
    ppoll(polled, count, &left, NULL);
}

static void step(void) {
    struct pollfd polled[LISTENERS_MAX + ENDS_MAX];
    long long due_us = -1;
    for (int i = 0; i < listener_count; i++)
        polled[i] = (struct pollfd){.fd = listeners[i].fd, .events = POLLIN};
    for (int i = 0; i < ENDS_MAX; i++) {
        long long next_us = deliver(&ends[i]);
        if (next_us >= 0 && (due_us < 0 || next_us < due_us)) due_us = next_us;
        polled[listener_count + i] = (struct pollfd){
            .fd = ends[i].is_closed || ends[i].fd == 0 ? -1 : ends[i].fd, .events = POLLIN};
    }
    wait_for(due_us, polled, (nfds_t)(listener_count + ENDS_MAX));
    for (int i = 0; i < ENDS_MAX; i++)
        if (polled[listener_count + i].fd > 0 && polled[listener_count + i].revents != 0)
            read_some(i);
    for (int i = 0; i < ENDS_MAX; i += 2)
        free_pair(&ends[i]);
    for (int i = 0; i < listener_count; i++)
        if (polled[i].revents != 0) accept_one(i);
}

int main(int argc, char **argv) {
    if (argc < 3 || argc - 2 > LISTENERS_MAX) return 2;
    delay_us = atoll(argv[1]);
    signal(SIGPIPE, SIG_IGN);
    for (int i = 2; i < argc; i++)
        if (!add_listener(argv[i])) return 1;
    puts("listening");
    fflush(stdout);
    for (;;)
        step();
}
