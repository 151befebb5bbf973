/* SPDX-License-Identifier: BSD-3-Clause */
/* loop_io_test.c - the descriptors of a loop: who is told of events, and who is not. */
#include "net_world.h"

enum { MANY = 100 };

/* One end of a pair of sockets; the case has the other end. */
typedef struct pipe_end {
    loop_io io;
    int far_fd, told;
    uint32_t ready;
    struct pipe_end *victim, *heir; /* see read_and_replace() */
} pipe_end;

static void read_all(loop_io *io, uint32_t ready) {
    pipe_end *end = container_of(io, pipe_end, io);
    char bytes[64];
    end->told++;
    end->ready = ready;
    while (recv(io->fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        continue;
}

static void open_pipe(pipe_end *end) {
    int fds[2] = {-1, -1};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    *end = (pipe_end){.io = {.fd = fds[0], .on_ready = read_all}, .far_fd = fds[1]};
}

static void watch_pipe(pipe_end *end) {
    open_pipe(end);
    CHECK(loop_watch(world.loop, &end->io, EPOLLIN | EPOLLET));
}

static void feed(const pipe_end *end) {
    CHECK(send(end->far_fd, "x", 1, MSG_NOSIGNAL) == 1);
}

static void close_pipe(pipe_end *end) {
    close(end->far_fd);
    if (end->io.fd >= 0) loop_close(world.loop, &end->io);
}

TEST(a_descriptor_is_told_that_bytes_have_come) {
    pipe_end a, b;
    watch_pipe(&a);
    watch_pipe(&b);
    settle();
    CHECK_EQUAL(a.told, 0);
    feed(&a);
    settle();
    CHECK_EQUAL(a.told, 1);
    CHECK_EQUAL(a.ready, EPOLLIN);
    CHECK_EQUAL(b.told, 0);
    close_pipe(&a);
    close_pipe(&b);
}

static void note_late(loop_timer *timer) {
    (void)timer;
    note("late");
}

TEST(bytes_are_told_of_before_time_passes) {
    pipe_end a;
    loop_timer late = {.on_due = note_late};
    watch_pipe(&a);
    feed(&a);
    loop_set_timer(world.loop, &late, START_US + 1);
    settle();
    CHECK_EQUAL(a.told, 1);
    CHECK_TEXT(world.journal, "");
    pass_us(1);
    CHECK_TEXT(world.journal, "late");
    close_pipe(&a);
}

TEST(a_descriptor_is_told_of_new_events_after_they_change) {
    pipe_end a;
    watch_pipe(&a);
    settle();
    CHECK_EQUAL(a.told, 0);
    CHECK(loop_watch(world.loop, &a.io, EPOLLIN | EPOLLOUT | EPOLLET));
    settle();
    CHECK(a.told > 0);
    CHECK_EQUAL(a.ready, EPOLLOUT);
    close_pipe(&a);
}

TEST(room_is_told_again_if_it_is_asked_for_again) {
    pipe_end a;
    watch_pipe(&a);
    for (int i = 0; i < 3; i++) { /* the event before may have come too soon to be of use */
        a.ready = 0;
        CHECK(loop_watch(world.loop, &a.io, EPOLLIN | EPOLLOUT | EPOLLET));
        settle();
        CHECK_EQUAL(a.ready, EPOLLOUT);
    }
    close_pipe(&a);
}

TEST(the_end_of_the_peer_is_told) {
    pipe_end a;
    watch_pipe(&a);
    shutdown(a.far_fd, SHUT_RDWR);
    settle();
    CHECK(a.told > 0);
    CHECK((a.ready & EPOLLHUP) != 0);
    close_pipe(&a);
}

/* Closes the victim and, in its place, watches the heir. */
static void read_and_replace(loop_io *io, uint32_t ready) {
    pipe_end *end = container_of(io, pipe_end, io);
    read_all(io, ready);
    if (end->victim->io.fd >= 0) loop_close(world.loop, &end->victim->io);
    if (end->heir != NULL && !end->heir->io.is_watched)
        CHECK(loop_watch(world.loop, &end->heir->io, EPOLLIN | EPOLLET));
}

TEST(a_descriptor_that_is_closed_is_not_told_of_a_pending_event) {
    pipe_end a, b;
    watch_pipe(&a);
    watch_pipe(&b);
    a.io.on_ready = b.io.on_ready = read_and_replace;
    a.victim = &b;
    b.victim = &a;
    feed(&a);
    feed(&b);
    settle();
    CHECK_EQUAL(a.told + b.told, 1);
    close_pipe(&a);
    close_pipe(&b);
}

TEST(a_new_descriptor_is_not_told_of_an_event_of_another) {
    pipe_end a, b, heir;
    watch_pipe(&a);
    watch_pipe(&b);
    open_pipe(&heir);
    a.io.on_ready = b.io.on_ready = read_and_replace;
    a.victim = &b;
    b.victim = &a;
    a.heir = b.heir = &heir;
    feed(&a);
    feed(&b);
    settle();
    CHECK_EQUAL(a.told + b.told, 1);
    CHECK_EQUAL(heir.told, 0);
    feed(&heir);
    settle();
    CHECK_EQUAL(heir.told, 1);
    close_pipe(&a);
    close_pipe(&b);
    close_pipe(&heir);
}

TEST(a_descriptor_can_be_closed_by_its_own_callback) {
    pipe_end a;
    watch_pipe(&a);
    a.io.on_ready = read_and_replace;
    a.victim = &a;
    feed(&a);
    settle();
    CHECK_EQUAL(a.told, 1);
    CHECK_EQUAL(a.io.fd, -1);
    CHECK(send(a.far_fd, "x", 1, MSG_NOSIGNAL) < 0);
    close_pipe(&a);
}

TEST(many_descriptors_are_told_each) {
    static pipe_end ends[MANY];
    for (int i = 0; i < MANY; i++)
        watch_pipe(&ends[i]);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i += 3) {
            close_pipe(&ends[i]);
            watch_pipe(&ends[i]);
        }
        for (int i = 0; i < MANY; i++)
            feed(&ends[i]);
        settle();
        for (int i = 0; i < MANY; i++)
            CHECK_EQUAL(ends[i].told, i % 3 == 0 ? 1 : round + 1);
    }
    for (int i = 0; i < MANY; i++)
        close_pipe(&ends[i]);
}

int main(void) {
    return unit_main(begin, end);
}
