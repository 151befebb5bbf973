/* SPDX-License-Identifier: BSD-3-Clause */
/* threads_world.h - a loop with real threads and real time. No case
 * measures time: what does not happen is waited for until the program is ended, see unit.h. A timer
 * after LATE_MS is later than that. */
#ifndef DLOCK_THREADS_WORLD_H
#define DLOCK_THREADS_WORLD_H

#include "net/loop_state.h"

#include "unit.h"
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LATE_MS = 600000, NEVER = -1 };

static loop *the_loop;

static inline int64_t now_us(void) {
    return clock_now_us(clock_system());
}

static inline void pause_ms(int64_t duration_ms) {
    struct timespec duration = {.tv_sec = duration_ms / 1000,
                                .tv_nsec = duration_ms % 1000 * 1000000};
    nanosleep(&duration, NULL);
}

static inline void begin(void) {
    the_loop = loop_new(clock_system());
    if (the_loop == NULL) abort();
}

static inline void end(void) {
    loop_lock(the_loop);
    CHECK_EQUAL(the_loop->to_wake_count, 0); /* a thread is woken once */
    loop_unlock(the_loop);
    loop_free(the_loop);
}

/* -- a thread that waits */

typedef struct sleeper {
    pthread_t thread;
    waiter waiter;
    cancel_switch cancel;
    int returned;    /* how often loop_wait() has returned; locked */
    bool is_waiting; /* locked */
    loop_timer timer;
    loop_io io; /* with far_fd: bytes make the sleeper ready */
    int far_fd;
} sleeper;

static inline void *sleep_once(void *arg) {
    sleeper *sleeper = arg;
    loop_lock(the_loop);
    sleeper->is_waiting = true;
    loop_wait(the_loop, &sleeper->waiter);
    sleeper->returned++;
    loop_unlock(the_loop);
    return NULL;
}

static inline void start_sleepers(sleeper *sleepers, int count) {
    for (int i = 0; i < count; i++) {
        sleepers[i].waiter.cancel = &sleepers[i].cancel;
        if (pthread_create(&sleepers[i].thread, NULL, sleep_once, &sleepers[i]) != 0) abort();
        for (bool is_waiting = false; !is_waiting; pause_ms(1)) {
            loop_lock(the_loop);
            is_waiting = sleepers[i].is_waiting;
            loop_unlock(the_loop);
        }
    }
    pause_ms(10);
}

/* -- as if the thread got no processor */

static sem_t is_stuck, may_run;

static inline void get_stuck(int number) {
    (void)number;
    sem_post(&is_stuck);
    while (sem_wait(&may_run) != 0)
        ;
}

static inline void hold_up(sleeper *sleeper) {
    sem_init(&is_stuck, 0, 0);
    sem_init(&may_run, 0, 0);
    signal(SIGUSR2, get_stuck);
    pthread_kill(sleeper->thread, SIGUSR2);
    while (sem_wait(&is_stuck) != 0)
        ;
}

static inline void let_run(void) {
    signal(SIGUSR2, SIG_DFL);
    sem_post(&may_run);
}

/* -- the end of a wait */

static inline int count_returned(sleeper *sleepers, int count) {
    int returned = 0;
    loop_lock(the_loop);
    for (int i = 0; i < count; i++)
        returned += sleepers[i].returned;
    loop_unlock(the_loop);
    return returned;
}

static inline void await_returned(sleeper *sleepers, int count, int expected) {
    while (count_returned(sleepers, count) < expected)
        pause_ms(1);
    CHECK_EQUAL(count_returned(sleepers, count), expected);
}

static inline void join_sleepers(sleeper *sleepers, int count) {
    for (int i = 0; i < count; i++)
        pthread_join(sleepers[i].thread, NULL);
}

static inline void wake_sleeper(loop_timer *timer) {
    loop_ready(the_loop, &container_of(timer, sleeper, timer)->waiter);
}

static inline void read_and_wake(loop_io *io, uint32_t ready) {
    (void)ready;
    sleeper *sleeper = container_of(io, struct sleeper, io);
    char bytes[16];
    while (recv(io->fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        loop_ready(the_loop, &sleeper->waiter);
}

static inline void open_pipe(loop_io *io, int *far_fd,
                             void (*on_ready)(loop_io *io, uint32_t ready)) {
    int fds[2] = {-1, -1};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    *io = (loop_io){.fd = fds[0], .on_ready = on_ready};
    *far_fd = fds[1];
}

static inline void give_sleepers_pipes(sleeper *sleepers, int count) {
    loop_lock(the_loop);
    for (int i = 0; i < count; i++) {
        open_pipe(&sleepers[i].io, &sleepers[i].far_fd, read_and_wake);
        CHECK(loop_watch(the_loop, &sleepers[i].io, EPOLLIN | EPOLLET));
    }
    loop_unlock(the_loop);
}

static inline void close_pipes(sleeper *sleepers, int count) {
    loop_lock(the_loop);
    for (int i = 0; i < count; i++) {
        loop_close(the_loop, &sleepers[i].io);
        close(sleepers[i].far_fd);
    }
    loop_unlock(the_loop);
}

static inline void feed(int far_fd) {
    CHECK(send(far_fd, "x", 1, MSG_NOSIGNAL) == 1);
}

#endif
