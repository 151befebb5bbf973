/* SPDX-License-Identifier: BSD-3-Clause */
/* scripted_peer.h - a server at a unix socket that does as it is told. Each accepted connection is
 * a link; link->heard lists the commands that arrived, "GET a; PING". The loop under test runs the
 * peer as well, so a case has one thread and no race. */
#ifndef DLOCK_SCRIPTED_PEER_H
#define DLOCK_SCRIPTED_PEER_H

#include "base/text.h"
#include "net/loop.h"
#include "net/resp.h"
#include "unit.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { LINKS_MAX = 80, HEARD_SIZE = 4096, PEER_BYTES = 1 << 20 };

typedef struct peer_link {
    loop_io io;
    bool is_open, is_deaf; /* deaf: reads nothing */
    char *in;
    size_t in_size, in_used;
    char heard[HEARD_SIZE];
} peer_link;

typedef struct peer {
    loop *loop;
    loop_io io; /* listens */
    char directory[32], path[48];
    peer_link links[LINKS_MAX];
    int link_count;
    /* Each command is answered by this; NULL: the peer says nothing by itself. */
    const char *(*answer)(const char *command);
} peer;

static peer the_peer;

static inline void link_end(peer_link *link) {
    if (!link->is_open) return;
    link->is_open = false;
    loop_close(the_peer.loop, &link->io);
}

static inline void link_say_bytes(peer_link *link, const char *bytes, size_t size) {
    ssize_t count = send(link->io.fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    CHECK_EQUAL(count, size);
}

static inline void link_say(peer_link *link, const char *bytes) {
    link_say_bytes(link, bytes, strlen(bytes));
}

static inline void link_note_command(peer_link *link, const reply *words) {
    char command[256] = "", word[48];
    for (size_t i = 0; i < words->count; i++) {
        reply_copy_text(reply_element(words, i), word, sizeof(word));
        if (i > 0) text_append(command, sizeof(command), " ");
        text_append(command, sizeof(command), word);
    }
    if (link->heard[0] != '\0') text_append(link->heard, sizeof(link->heard), "; ");
    text_append(link->heard, sizeof(link->heard), command);
    const char *answer = the_peer.answer == NULL ? NULL : the_peer.answer(command);
    if (answer != NULL) link_say(link, answer);
}

static inline void link_take_commands(peer_link *link) {
    resp_reader reader = {0};
    const reply *words;
    size_t used;
    while (resp_read(&reader, link->in + link->in_used, link->in_size - link->in_used, &words,
                     &used) == RESP_REPLY) {
        link->in_used += used;
        link_note_command(link, words);
    }
    resp_reader_free(&reader);
}

static inline void on_link_ready(loop_io *io, uint32_t ready) {
    peer_link *link = container_of(io, peer_link, io);
    ssize_t count = 0;
    if (link->is_deaf && (ready & (EPOLLHUP | EPOLLERR)) == 0) return;
    while (!link->is_deaf && (count = recv(io->fd, link->in + link->in_size,
                                           PEER_BYTES - link->in_size, MSG_DONTWAIT)) > 0)
        link->in_size += (size_t)count;
    bool is_over = count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    link_take_commands(link);
    if (is_over) link_end(link);
}

/* A deaf link reads what it has missed. */
static inline void link_listen(peer_link *link) {
    link->is_deaf = false;
    on_link_ready(&link->io, EPOLLIN);
}

static inline void on_peer_ready(loop_io *io, uint32_t ready) {
    (void)ready;
    int fd;
    while (the_peer.link_count < LINKS_MAX && (fd = accept(io->fd, NULL, NULL)) >= 0) {
        peer_link *link = &the_peer.links[the_peer.link_count++];
        *link = (peer_link){.is_open = true, .io = {.fd = fd, .on_ready = on_link_ready}};
        link->in = malloc(PEER_BYTES);
        if (link->in == NULL) abort();
        CHECK(loop_watch(the_peer.loop, &link->io, EPOLLIN | EPOLLET));
    }
}

static inline struct sockaddr_un peer_address(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    text_copy(address.sun_path, sizeof(address.sun_path), the_peer.path);
    return address;
}

/* Accepts connections from now on. */
static inline void peer_listen(void) {
    struct sockaddr_un address = peer_address();
    unlink(the_peer.path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK(bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK(listen(fd, LINKS_MAX) == 0);
    the_peer.io = (loop_io){.fd = fd, .on_ready = on_peer_ready};
    CHECK(loop_watch(the_peer.loop, &the_peer.io, EPOLLIN));
}

/* New connections are refused; those that exist go on. */
static inline void peer_refuse(void) {
    if (the_peer.io.fd >= 0) loop_close(the_peer.loop, &the_peer.io);
}

/* The nth connection that the peer has accepted. */
static inline peer_link *link_at(int index) {
    static peer_link none = {.io = {.fd = -1}};
    bool is_there = index < the_peer.link_count;
    CHECK(is_there);
    return is_there ? &the_peer.links[index] : &none;
}

static inline int open_links(void) {
    int count = 0;
    for (int i = 0; i < the_peer.link_count; i++)
        count += the_peer.links[i].is_open;
    return count;
}

static inline const char *answer_pong(const char *command) {
    (void)command;
    return "+PONG\r\n";
}

static inline void peer_begin(loop *loop) {
    the_peer = (peer){.loop = loop, .directory = "/tmp/net_world.XXXXXX"};
    if (mkdtemp(the_peer.directory) == NULL) abort();
    snprintf(the_peer.path, sizeof(the_peer.path), "%s/peer", the_peer.directory);
    peer_listen();
}

static inline void peer_end(void) {
    for (int i = 0; i < the_peer.link_count; i++) {
        link_end(&the_peer.links[i]);
        free(the_peer.links[i].in);
    }
    peer_refuse();
    unlink(the_peer.path);
    rmdir(the_peer.directory);
}

#endif
