/* SPDX-License-Identifier: BSD-3-Clause */
/* loop.c - see loop.h.
 *
 *   turn      runs deferred tasks and due timers, sends, sleeps in epoll_wait(2) without the mutex,
 *             and calls the owners of the descriptors that are ready
 *   wait      a thread makes turns while no other thread does; else it sleeps on its futex. When
 *             the thread that polls leaves, the thread that began to wait last takes over, since
 *             it is likely to wait longest
 *   send      bytes are sent without the mutex. If the owner closes the descriptor meanwhile, the
 *             sender closes it afterwards, so that its number is not used again too soon
 *   gather    threads whose replies came together usually make their next requests at the same
 *             moment, and one send(2) for many of them is cheaper. So while woken threads have not
 *             run yet, requests are gathered. A third of the requests under way is enough to be
 *             sent, so that server and threads work at the same time. The last woken thread sends
 *             the rest, and finds the next thread to poll. A thread that gets no processor holds
 *             up the others for GATHER_US at most: a timer ends the gathering
 *   spin      while several threads wait, the one that polls does not sleep at once (spin.h)
 *
 * Gathering and spinning are for speed only. Measured one by one, server and clients on a core
 * each, medians of runs in turn: without gathering, 16 threads with a lock each reach 0.76 of the
 * rate and 64 threads 0.49, at 1.6 times the processor time; gathering all instead of a third, 64
 * threads reach 0.9. Without spinning, 8 threads reach 0.65 of the rate of a lock that all of them
 * want, and a thread beside 100 waiting ones 0.66. Two other tricks are gone. A blocking recv(2) in
 * place of epoll_wait(2) and recv(2) brought one thread nothing. A futex for each 32 threads saved
 * system calls (64 threads: 1.2), but woke the wrong threads (1,000 threads, one lock: 0.3).
 *
 * Time: a timerfd on CLOCK_BOOTTIME in the epoll set wakes the thread that polls, at an absolute
 * time, so neither SIGSTOP nor suspend delay a timer. The timerfd may go off too early, never too
 * late.
 *
 * Invariants: no thread sleeps while tasks are deferred or bytes are to be sent, unless the bytes
 * are being gathered, with a timer. The thread that takes an event out of epoll handles it. */
#include "net/loop_state.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { EVENTS_MAX = 64, GATHER_PIECES = 3, GATHER_US = 1000, REST_NS = 50000 };

static void on_gather_due(loop_timer *timer) {
    loop *loop = container_of(timer, struct loop, gathering.timer);
    loop->gathering.count = SIZE_MAX / 2; /* more than any third */
}

loop *loop_new(const clock_source *clock) {
    loop *loop = calloc(1, sizeof(*loop));
    if (loop == NULL) return NULL;
    loop->clock = clock;
    loop->gathering.timer.on_due = on_gather_due;
    loop->armed_us = DEADLINE_NEVER;
    mutex_init(&loop->mutex);
    list_init(&loop->tasks);
    list_init(&loop->writes);
    list_init(&loop->waiters);
    dispatching_init(&loop->dispatching);
    loop->watched.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->watched.timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    loop->watched.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    loop->background.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bool is_made = loop->watched.epoll_fd >= 0 && loop->background.wake_fd >= 0 &&
                   epoll_add(loop->watched.epoll_fd, loop->watched.timer_fd) &&
                   epoll_add(loop->watched.epoll_fd, loop->watched.wake_fd);
    if (is_made) return loop;
    loop_free(loop);
    return NULL;
}

static void run_tasks(loop *loop);

void loop_free(loop *loop) {
    if (loop == NULL) return;
    background_stop(loop);
    run_tasks(loop); /* memory of closed connections */
    close_if_open(loop->watched.epoll_fd);
    close_if_open(loop->watched.timer_fd);
    close_if_open(loop->watched.wake_fd);
    close_if_open(loop->background.wake_fd);
    dispatching_free(&loop->dispatching);
    pthread_mutex_destroy(&loop->mutex);
    free(loop->watched.by_fd);
    free(loop);
}

const clock_source *loop_clock(const loop *loop) {
    return loop->clock;
}

int64_t loop_now_us(const loop *loop) {
    return clock_now_us(loop->clock);
}

/* -- events */

static void wake_on_futex(loop *loop, waiter *waiter) {
    if (!waiter->is_on_futex || waiter->is_woken) return;
    waiter->is_woken = true;
    loop->gathering.woken++;
    wakeup_mark(&waiter->wakeup);
    if (loop->to_wake_count < LOOP_WAKE_MAX)
        loop->to_wake[loop->to_wake_count++] = &waiter->wakeup;
    else
        wakeup_wake(&waiter->wakeup);
}

/* The eventfd that wakes the thread that polls. In a loop without threads, the program polls
 * wake_fd as a part of the dispatch descriptor, and would take the event away. */
static int sleeper_fd(const loop *loop) {
    return loop->has_no_threads ? loop->background.wake_fd : loop->watched.wake_fd;
}

static void wake_any(loop *loop, waiter *waiter) {
    if (waiter->is_asleep)
        event_signal(sleeper_fd(loop));
    else
        wake_on_futex(loop, waiter);
}

static void wake_canceled(loop *loop) {
    list_each(waiter, each, &loop->waiters, node)
        if (waiter_can_go_on(loop, each)) wake_any(loop, each);
    dispatch_canceled(loop);
}

/* The descriptor of an event may have been closed since, and its number used again: then the new
 * owner is told for nothing. */
static void handle_event(loop *loop, const struct epoll_event *event) {
    int fd = event->data.fd;
    eventfd_t count; /* a timerfd is read like an eventfd */
    if (fd == loop->watched.timer_fd || fd == loop->watched.wake_fd) {
        eventfd_read(fd, &count);
        if (fd == loop->watched.timer_fd) loop->armed_us = DEADLINE_NEVER;
        if (fd == loop->watched.wake_fd) wake_canceled(loop);
        return;
    }
    loop_io *io = loop->watched.by_fd[fd];
    if (io != NULL) io->on_ready(io, event->events);
}

/* -- descriptors */

static bool reserve_fd(loop *loop, int fd) {
    if ((size_t)fd < loop->watched.capacity) return true;
    size_t capacity = (size_t)fd * 2 + 1;
    loop_io **grown = realloc(loop->watched.by_fd, capacity * sizeof(grown[0]));
    if (grown == NULL) return false;
    for (size_t i = loop->watched.capacity; i < capacity; i++)
        grown[i] = NULL;
    loop->watched.by_fd = grown;
    loop->watched.capacity = capacity;
    return true;
}

bool loop_watch(loop *loop, loop_io *io, uint32_t events) {
    /* EPOLLOUT is asked for again: another thread may have taken the event during the send. */
    bool is_known = io->is_watched && io->events == events && (events & EPOLLOUT) == 0;
    if (is_known) return true;
    struct epoll_event event = {.events = events, .data.fd = io->fd};
    int operation = io->is_watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (!reserve_fd(loop, io->fd) ||
        epoll_ctl(loop->watched.epoll_fd, operation, io->fd, &event) != 0)
        return false;
    loop->watched.by_fd[io->fd] = io;
    io->is_watched = true;
    io->events = events;
    return true;
}

void loop_tell_again(loop *loop, loop_io *io) {
    struct epoll_event event = {.events = io->events, .data.fd = io->fd};
    epoll_ctl(loop->watched.epoll_fd, EPOLL_CTL_MOD, io->fd, &event);
    loop->has_left_events = true;
}

void loop_close(loop *loop, loop_io *io) {
    if (io->is_watched) {
        /* By hand: a forked child with a copy of the descriptor would keep the registration. */
        epoll_ctl(loop->watched.epoll_fd, EPOLL_CTL_DEL, io->fd, NULL);
        loop->watched.by_fd[io->fd] = NULL;
        io->is_watched = false;
    }
    list_remove(&io->write_node);
    if (loop_is_sending(io))
        *io->closed_meanwhile = true; /* the sender closes the descriptor */
    else
        close_if_open(io->fd);
    io->closed_meanwhile = NULL;
    io->fd = -1;
}

void loop_write(loop *loop, loop_io *io, size_t under_way) {
    loop->gathering.count++;
    loop->gathering.under_way = under_way;
    if (!list_has(&io->write_node)) list_append(&loop->writes, &io->write_node);
}

/* Gives the mutex back meanwhile. The io may be gone afterwards, if its owner has closed it. */
static void send_output(loop *loop, loop_io *io, bytes *output) {
    bool is_closed = false;
    int fd = io->fd;
    io->closed_meanwhile = &is_closed;
    loop_give_mutex(loop);
    ssize_t count = send(fd, output->data, output->size, MSG_NOSIGNAL | MSG_DONTWAIT);
    int fault = errno;
    loop_lock(loop);
    if (is_closed) {
        close(fd);
        free(output->data);
        return;
    }
    io->closed_meanwhile = NULL;
    io->on_written(io, output, count, fault);
}

/* -- timers and tasks */

void loop_set_timer(loop *loop, loop_timer *timer, int64_t due_us) {
    heap_remove(&loop->timers, &timer->node);
    if (due_us != DEADLINE_NEVER) heap_add(&loop->timers, &timer->node, due_us);
}

void loop_clear_timer(loop *loop, loop_timer *timer) {
    heap_remove(&loop->timers, &timer->node);
}

static int64_t next_due_us(const loop *loop) {
    const heap_node *first = heap_first(&loop->timers);
    return first == NULL ? DEADLINE_NEVER : first->due_us;
}

static void arm_timer(loop *loop) {
    int64_t due_us = next_due_us(loop);
    if (due_us >= loop->armed_us || loop->clock->skip_to != NULL) return;
    if (due_us < 1) due_us = 1; /* 0 would switch the timerfd off */
    struct itimerspec when = {
        .it_value = {.tv_sec = due_us / 1000000, .tv_nsec = due_us % 1000000 * 1000}};
    timerfd_settime(loop->watched.timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
    loop->armed_us = due_us;
}

static void run_timers(loop *loop) {
    int64_t now_us = loop_now_us(loop);
    heap_node *first;
    while ((first = heap_first(&loop->timers)) != NULL && first->due_us <= now_us) {
        loop_timer *timer = container_of(first, loop_timer, node);
        heap_remove(&loop->timers, first);
        timer->on_due(timer);
    }
}

void loop_defer(loop *loop, loop_task *task) {
    if (!list_has(&task->node)) list_append(&loop->tasks, &task->node);
}

static void run_tasks(loop *loop) {
    list_node *first;
    while ((first = list_first(&loop->tasks)) != NULL) {
        list_remove(first);
        loop_task *task = container_of(first, loop_task, node);
        task->run(task);
    }
}

/* -- the mutex */

void loop_lock(loop *loop) {
    pthread_mutex_lock(&loop->mutex);
}

void loop_give_mutex(loop *loop) {
    wakeup *to_wake[LOOP_WAKE_MAX];
    size_t count = loop->to_wake_count;
    arm_timer(loop);
    if (dispatch_has_work(loop)) dispatch_signal(loop);
    memcpy(to_wake, loop->to_wake, count * sizeof(to_wake[0]));
    loop->to_wake_count = 0;
    pthread_mutex_unlock(&loop->mutex);
    for (size_t i = 0; i < count; i++)
        wakeup_wake(to_wake[i]);
}

static void end_gathering(loop *loop) {
    loop->gathering.count = 0;
    loop_clear_timer(loop, &loop->gathering.timer);
}

void loop_send_all(loop *loop) {
    list_node *first;
    run_tasks(loop);
    end_gathering(loop);
    while ((first = list_first(&loop->writes)) != NULL) {
        loop_io *io = container_of(first, loop_io, write_node);
        bytes output;
        list_remove(first);
        if (!loop_is_sending(io) && io->take_output(io, &output)) send_output(loop, io, &output);
        run_tasks(loop);
    }
    end_gathering(loop); /* bytes that were queued meanwhile are sent, too */
}

/* Runs all tasks, and sends all bytes unless they are being gathered. */
static void finish_work(loop *loop) {
    gathering *gathering = &loop->gathering;
    run_tasks(loop);
    size_t piece = (gathering->under_way + gathering->woken) / GATHER_PIECES;
    if (gathering->woken == 0 || (gathering->count > 0 && gathering->count >= piece))
        loop_send_all(loop);
    else if (gathering->count > 0 && !heap_has(&gathering->timer.node))
        loop_set_timer(loop, &gathering->timer, loop_now_us(loop) + GATHER_US);
}

void loop_unlock(loop *loop) {
    if (dispatch_is_gathering(loop))
        run_tasks(loop);
    else
        finish_work(loop);
    loop_give_mutex(loop);
}

/* -- turns */

/* Does the thread that polls wait alone? */
static bool is_only_waiter(const loop *loop) {
    const list_node *first = list_first(&loop->waiters);
    return first != NULL && list_next(&loop->waiters, first) == NULL;
}

/* Sleeps in a loop without threads, where a dispatch may take events out of epoll at any time. So
 * this thread only looks whether there are events, and has an eventfd of its own. */
static void sleep_beside_dispatch(const loop *loop) {
    struct pollfd sources[] = {{.fd = loop->watched.epoll_fd, .events = POLLIN},
                               {.fd = loop->background.wake_fd, .events = POLLIN}};
    eventfd_t count;
    poll(sources, 2, -1);
    if (sources[1].revents != 0) eventfd_read(loop->background.wake_fd, &count);
}

/* A thread that takes a mutex again at once usually gets it, before the threads that wait for the
 * mutex have woken up. */
static void let_others_lock(void) {
    nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
}

/* Polls for a moment without sleeping, and lets other threads have the processor. Not locked. The
 * result is that of epoll_wait(2). */
static int poll_spinning(loop *loop, struct epoll_event *events, int max) {
    int64_t begin_us = loop_now_us(loop), now_us = begin_us;
    if (!spin_is_wanted(&loop->watched.spin, begin_us)) return 0;
    int count = epoll_wait(loop->watched.epoll_fd, events, max, 0);
    if (count != 0) return count; /* says nothing about spinning */
    while (count == 0 && now_us < begin_us + SPIN_US) {
        sched_yield();
        count = epoll_wait(loop->watched.epoll_fd, events, max, 0);
        now_us = loop_now_us(loop);
    }
    spin_note(&loop->watched.spin, count > 0, begin_us, now_us);
    return count;
}

/* Polls, with the mutex released, and handles the events. sleeper: the thread may sleep; NULL: it
 * only looks. */
static void poll_once(loop *loop, waiter *sleeper) {
    struct epoll_event events[EVENTS_MAX];
    bool is_real = loop->clock->skip_to == NULL, has_left_events = loop->has_left_events;
    loop->has_left_events = false;
    if (sleeper != NULL) sleeper->is_asleep = true;
    bool sleeps = is_real && sleeper != NULL, sleeps_beside = sleeps && loop->has_no_threads;
    bool spins = sleeps && !sleeps_beside && !is_only_waiter(loop);
    loop_give_mutex(loop);
    if (is_real && has_left_events) let_others_lock();
    if (sleeps_beside) sleep_beside_dispatch(loop);
    int count = spins ? poll_spinning(loop, events, EVENTS_MAX) : 0;
    if (count == 0)
        count = epoll_wait(loop->watched.epoll_fd, events, EVENTS_MAX,
                           sleeps && !sleeps_beside ? -1 : 0);
    pthread_mutex_lock(&loop->mutex);
    if (sleeper != NULL) sleeper->is_asleep = false;
    if (count <= 0 && !is_real) loop->clock->skip_to(loop->clock, next_due_us(loop));
    for (int i = 0; i < count; i++)
        handle_event(loop, &events[i]);
}

static void turn(loop *loop, waiter *waiter) {
    loop->turns++;
    run_timers(loop);
    finish_work(loop);
    if (waiter_can_go_on(loop, waiter) || next_due_us(loop) <= loop_now_us(loop)) return;
    poll_once(loop, waiter);
}

/* -- waiting */

static void sleep_on_futex(loop *loop, waiter *waiter) {
    finish_work(loop);
    if (waiter_can_go_on(loop, waiter) || !loop->is_polling)
        return; /* the mutex was released meanwhile */
    waiter->is_on_futex = true;
    unsigned seen = wakeup_seen(&waiter->wakeup);
    loop_give_mutex(loop);
    wakeup_wait(&waiter->wakeup, seen, -1);
    loop_lock(loop);
    waiter->is_on_futex = false;
    if (waiter->is_woken) loop->gathering.woken--;
    waiter->is_woken = false;
}

/* The thread that began to wait last polls from now on. */
static void pass_polling_on(loop *loop) {
    list_node *last = list_last(&loop->waiters);
    if (loop->is_polling || loop->gathering.woken > 0) return;
    if (last != NULL)
        wake_on_futex(loop, container_of(last, waiter, node));
    else if (loop->background.is_napping && !list_is_empty(&loop->dispatching.suspended))
        wakeup_signal(&loop->background.nap);
}

void loop_wait(loop *loop, waiter *waiter) {
    list_append(&loop->waiters, &waiter->node);
    while (!waiter_can_go_on(loop, waiter)) {
        if (loop->is_polling) {
            sleep_on_futex(loop, waiter);
            continue;
        }
        loop->is_polling = true;
        while (!waiter_can_go_on(loop, waiter))
            turn(loop, waiter);
        loop->is_polling = false;
    }
    list_remove(&waiter->node);
    waiter->is_ready = false;
    pass_polling_on(loop);
}

void loop_ready(loop *loop, waiter *waiter) {
    bool was_ready = waiter->is_ready;
    waiter->is_ready = true;
    if (!list_has(&waiter->node) || (was_ready && waiter->is_suspended)) return;
    if (waiter->is_suspended)
        dispatch_ready(loop, waiter);
    else
        wake_any(loop, waiter);
}

typedef struct wait_limit {
    loop_timer timer;
    loop *loop;
    waiter *waiter;
} wait_limit;

static void on_wait_limit(loop_timer *timer) {
    wait_limit *limit = container_of(timer, wait_limit, timer);
    loop_ready(limit->loop, limit->waiter);
}

void loop_wait_until(loop *loop, waiter *waiter, int64_t until_us) {
    wait_limit limit = {.timer.on_due = on_wait_limit, .loop = loop, .waiter = waiter};
    loop_set_timer(loop, &limit.timer, until_us);
    loop_wait(loop, waiter);
    loop_clear_timer(loop, &limit.timer);
}

void loop_count_owed(loop *loop, ptrdiff_t change) {
    loop->owed += (size_t)change;
    if (loop->owed == 0 && loop->drained != NULL) loop_ready(loop, loop->drained);
}

void loop_drain(loop *loop, int64_t until_us) {
    waiter waiter = {0};
    loop->drained = &waiter;
    while (loop->owed > 0 && loop_now_us(loop) < until_us)
        loop_wait_until(loop, &waiter, until_us);
    loop->drained = NULL;
}

void loop_interrupt(loop *loop) {
    event_signal(loop->watched.wake_fd);
}

void loop_cancel(loop *loop, bool is_canceled) {
    if (!is_canceled) {
        cancel_lift(&loop->cancel);
        return;
    }
    cancel_set(&loop->cancel);
    loop_interrupt(loop);
}

void loop_note_cancels(const loop *loop, waiter *waiter, const cancel_switch *cancel) {
    waiter->own_cancel_before = atomic_load(cancel);
    waiter->client_cancel_before = atomic_load(&loop->cancel);
}

bool loop_has_canceled(const loop *loop, const waiter *waiter, const cancel_switch *cancel) {
    return cancel != NULL && (cancel_is_seen(cancel, waiter->own_cancel_before) ||
                              cancel_is_seen(&loop->cancel, waiter->client_cancel_before));
}

void loop_turn_beside(loop *loop) {
    poll_once(loop, NULL);
    run_timers(loop);
    finish_work(loop);
}

bool loop_turn(loop *loop) {
    if (loop->is_polling) return false;
    loop->is_polling = true;
    loop_turn_beside(loop);
    loop->is_polling = false;
    pass_polling_on(loop);
    return true;
}
