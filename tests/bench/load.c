/* SPDX-License-Identifier: BSD-3-Clause */
/* load.c - loads several servers in turn, as fast as each of them answers.
 *
 *   load REPLIES CONNECTIONS SLICE_MS SLICES PORT FILE [PORT FILE]...
 *
 * The servers take turns of SLICE_MS, SLICES times, so that a slow moment of the machine hits them
 * all. While one is loaded the others are idle.
 *
 * FILE holds what to send: portions, each after its length as a line of its own, and each answered
 * by REPLIES replies of one line. A connection owns an equal share of them and goes round and round
 * in it: send one, wait for all its answers, send the next.
 *
 * Prints for each server: replies, refused replies (errors, nulls and zeros), seconds. */
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { TARGETS_MAX = 16, EVENTS_MAX = 64, READ_MAX = 65536, HEAD = 3 };

typedef struct portion {
    char *bytes;
    size_t size;
} portion;

typedef struct connection {
    int fd;
    size_t first, last, next; /* its share of the portions, and the one to send next */
    int replies_due;
    char head[HEAD]; /* how the line that is being read begins */
    size_t line_length;
} connection;

typedef struct target {
    portion *portions;
    size_t portion_count;
    int replies_each;
    connection *connections;
    size_t connection_count;
    int poll_fd;
    size_t busy_count; /* connections that wait for answers */
    long long replies;
    long long refused;
    double seconds;
} target;

static double now_seconds(void) {
    return (double)wire_now_ns() / 1e9;
}

static portion read_portion(FILE *file, size_t size) {
    portion read = {malloc(size), size};
    if (read.bytes == NULL || fread(read.bytes, 1, size, file) != size) wire_fail("a portion");
    return read;
}

static void read_portions(target *t, const char *path) {
    char line[32];
    FILE *file = fopen(path, "rb");
    if (file == NULL) wire_fail(path);
    while (fgets(line, sizeof(line), file) != NULL) {
        t->portions = realloc(t->portions, (t->portion_count + 1) * sizeof(portion));
        if (t->portions == NULL) wire_fail("realloc");
        t->portions[t->portion_count++] = read_portion(file, strtoul(line, NULL, 10));
    }
    fclose(file);
    if (t->portion_count < t->connection_count) wire_fail("the number of portions");
}

static void open_target(target *t, int port, const char *path) {
    read_portions(t, path);
    t->connections = calloc(t->connection_count, sizeof(connection));
    t->poll_fd = epoll_create1(0);
    if (t->connections == NULL || t->poll_fd < 0) wire_fail("connections");
    for (size_t i = 0; i < t->connection_count; i++) {
        connection *c = &t->connections[i];
        c->fd = wire_connect(port);
        c->first = c->next = i * t->portion_count / t->connection_count;
        c->last = (i + 1) * t->portion_count / t->connection_count;
        struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = c};
        if (epoll_ctl(t->poll_fd, EPOLL_CTL_ADD, c->fd, &wanted) != 0) wire_fail("epoll_ctl");
    }
}

static void send_next(target *t, connection *c) {
    const portion *next = &t->portions[c->next];
    if (send(c->fd, next->bytes, next->size, MSG_NOSIGNAL) != (ssize_t)next->size)
        wire_fail("send");
    c->next = c->next + 1 == c->last ? c->first : c->next + 1;
    c->replies_due = t->replies_each;
    t->busy_count++;
}

static bool is_refusal(const char head[HEAD]) {
    return head[0] == '-' || head[0] == '_' || (head[0] == '$' && head[1] == '-') ||
           (head[0] == ':' && head[1] == '0' && head[2] == '\r');
}

static void count_lines(target *t, connection *c, const char *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (c->line_length < HEAD) c->head[c->line_length] = bytes[i];
        c->line_length++;
        if (bytes[i] != '\n') continue;
        c->line_length = 0;
        c->replies_due--;
        t->replies++;
        if (is_refusal(c->head)) t->refused++;
    }
}

static void receive(target *t, connection *c, bool go_on) {
    static char buffer[READ_MAX];
    errno = 0;
    ssize_t size = recv(c->fd, buffer, sizeof(buffer), 0);
    if (size <= 0) wire_fail("recv");
    count_lines(t, c, buffer, (size_t)size);
    if (c->replies_due > 0) return;
    t->busy_count--;
    if (go_on) send_next(t, c);
}

static void run_slice(target *t, double duration) {
    double begin = now_seconds(), now = begin;
    for (size_t i = 0; i < t->connection_count; i++)
        send_next(t, &t->connections[i]);
    while (t->busy_count > 0) {
        struct epoll_event events[EVENTS_MAX];
        int ready = epoll_wait(t->poll_fd, events, EVENTS_MAX, -1);
        for (int i = 0; i < ready; i++)
            receive(t, events[i].data.ptr, now - begin < duration);
        now = now_seconds();
    }
    t->seconds += now - begin;
}

int main(int argc, char **argv) {
    static target targets[TARGETS_MAX];
    int target_count = (argc - 5) / 2;
    if (argc < 7 || argc % 2 == 0 || target_count > TARGETS_MAX) {
        fprintf(stderr, "usage: load REPLIES CONNECTIONS SLICE_MS SLICES PORT FILE...\n");
        return 2;
    }
    for (int i = 0; i < target_count; i++) {
        targets[i].replies_each = atoi(argv[1]);
        targets[i].connection_count = (size_t)atol(argv[2]);
        open_target(&targets[i], atoi(argv[5 + 2 * i]), argv[6 + 2 * i]);
    }
    for (int slice = 0; slice < atoi(argv[4]); slice++)
        for (int i = 0; i < target_count; i++)
            run_slice(&targets[i], atof(argv[3]) / 1000);
    for (int i = 0; i < target_count; i++)
        printf("%lld %lld %.6f\n", targets[i].replies, targets[i].refused, targets[i].seconds);
    return 0;
}
