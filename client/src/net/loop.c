/* SPDX-License-Identifier: BSD-3-Clause */
/* loop.c - see loop.h.
 *
 *   turn         run deferred tasks and due timers; sleep until something is ready (the mutex is
 *                released meanwhile); call the owners of ready descriptors
 *   wait         a thread makes turns while no other one does; else it sleeps on a futex. When the
 *                thread that polls leaves, the thread that began to wait last takes over: it is
 *                likely to wait longest
 *   gather       threads whose replies came together usually send their next requests at once. So
 *                while woken threads have not run yet, requests are gathered. They are sent once
 *                they are a third of all that are under way or about to be, so that server and
 *                threads work at the same time. The last woken thread sends the rest, and finds
 *                the next to poll. A thread that gets no processor holds up the others for
 *                GATHER_US at most: a timer ends the gathering
 *
 * Time: a timerfd on CLOCK_BOOTTIME in the epoll set wakes the sleeper, with an absolute time, so
 * neither SIGSTOP nor suspend delay a timer. The timerfd may go off too early, never too late.
 *
 * Invariants: nobody sleeps while tasks are deferred or bytes are to be sent, unless the bytes are
 * being gathered, with a timer. Whoever takes an event out of epoll handles it. Descriptors:
 * loop_io.c. */
#include "net/loop_state.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { EVENTS_MAX = 64, GATHER_PIECES = 3, GATHER_US = 1000, REST_NS = 50000 };

static void on_gather_due(loop_timer *timer) {
    loop *loop = container_of(timer, struct loop, gathering.timer);
    loop->gathering.count = SIZE_MAX / 2; /* enough */
}

loop *loop_new(const clock_source *clock) {
    loop *loop = calloc(1, sizeof(*loop));
    if (loop == NULL) return NULL;
    loop->clock = clock;
    loop->gathering.timer.on_due = on_gather_due;
    loop->armed_us = DEADLINE_NEVER;
    loop->brief.busy_fd = -1;
    mutex_init(&loop->mutex);
    list_init(&loop->tasks);
    list_init(&loop->writes);
    list_init(&loop->waiters);
    list_init(&loop->busy);
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

static void wake(loop *loop, waiter *waiter) {
    if (!waiter->is_on_futex || waiter->is_woken) return;
    waiter->is_woken = true;
    loop->gathering.woken++;
    sleepers_mark(&loop->sleepers, waiter->seat);
}

/* A loop without threads uses another descriptor than the program polls. */
static int sleeper_fd(const loop *loop) {
    return loop->has_no_threads ? loop->background.wake_fd : loop->watched.wake_fd;
}

static void wake_any(loop *loop, waiter *waiter) {
    if (waiter->is_asleep)
        event_signal(sleeper_fd(loop));
    else
        wake(loop, waiter);
}

static void wake_canceled(loop *loop) {
    list_each(waiter, each, &loop->waiters, node)
        if (waiter_can_go_on(loop, each)) wake_any(loop, each);
    dispatch_canceled(loop);
}

/* An event may be of a descriptor that was closed, and whose number was used again, since: then the
 * new owner is told for nothing. */
static void dispatch(loop *loop, const struct epoll_event *event) {
    int fd = event->data.fd;
    eventfd_t count; /* a timerfd is read like an eventfd */
    if (fd == loop->watched.timer_fd || fd == loop->watched.wake_fd) {
        eventfd_read(fd, &count);
        if (fd == loop->watched.timer_fd) loop->armed_us = DEADLINE_NEVER;
        if (fd == loop->watched.wake_fd) wake_canceled(loop);
        return;
    }
    loop_io *io = loop->watched.by_fd[fd];
    if (io != NULL && fd == loop->brief.busy_fd)
        loop->brief.ready |= event->events; /* two readers would mix up the bytes */
    else if (io != NULL)
        io->on_ready(io, event->events);
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
    seat_set marked;
    arm_timer(loop);
    dispatch_signal(loop);
    bool is_any = sleepers_take_marks(&loop->sleepers, &marked);
    pthread_mutex_unlock(&loop->mutex);
    if (is_any) sleepers_wake(&loop->sleepers, &marked);
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
        if (io->take_output(io, &output)) loop_send(loop, io, &output);
        run_tasks(loop);
    }
    end_gathering(loop); /* of what was written meanwhile, and is sent */
}

/* Afterwards nothing is deferred, and nothing is to be sent but what is being gathered. */
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

/* Events may be taken away by a dispatch meanwhile, a signal for the sleeper may not. */
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

/* sleeper NULL: does not sleep. */
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
    int count = spins ? loop_spin(loop, events, EVENTS_MAX) : 0;
    if (count == 0)
        count = epoll_wait(loop->watched.epoll_fd, events, EVENTS_MAX,
                           sleeps && !sleeps_beside ? -1 : 0);
    pthread_mutex_lock(&loop->mutex);
    if (sleeper != NULL) sleeper->is_asleep = false;
    if (count <= 0 && !is_real) loop->clock->skip_to(loop->clock, next_due_us(loop));
    for (int i = 0; i < count; i++)
        dispatch(loop, &events[i]);
}

/* One thread waits, for one reply that is about to come, and nothing else can happen. */
static bool can_read_briefly(const loop *loop) {
    return loop->brief.io != NULL && loop->watched.io_count == 1 && loop->clock->skip_to == NULL &&
           is_only_waiter(loop) && next_due_us(loop) > loop_now_us(loop) + LOOP_BRIEF_US;
}

/* Locked before and after. */
static void turn(loop *loop, waiter *waiter) {
    loop->turns++;
    run_timers(loop);
    finish_work(loop);
    if (waiter_can_go_on(loop, waiter) || next_due_us(loop) <= loop_now_us(loop)) return;
    if (can_read_briefly(loop))
        loop_read_briefly(loop);
    else
        poll_once(loop, waiter);
}

/* -- waiting */

static void sleep_on_futex(loop *loop, waiter *waiter) {
    finish_work(loop);
    if (waiter_can_go_on(loop, waiter) || !loop->is_polling)
        return; /* the mutex was released meanwhile */
    waiter->seat = sleepers_take_seat(&loop->sleepers);
    waiter->is_on_futex = true;
    unsigned seen = sleepers_seen(&loop->sleepers, waiter->seat);
    loop_give_mutex(loop);
    sleepers_wait(&loop->sleepers, waiter->seat, seen);
    loop_lock(loop);
    sleepers_leave_seat(&loop->sleepers, waiter->seat);
    waiter->is_on_futex = false;
    if (waiter->is_woken) loop->gathering.woken--;
    waiter->is_woken = false;
}

/* The thread that began to wait last polls from now on. */
static void pass_on(loop *loop) {
    list_node *last = list_last(&loop->waiters);
    if (loop->is_polling || loop->gathering.woken > 0) return;
    if (last != NULL)
        wake(loop, container_of(last, waiter, node));
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
    pass_on(loop);
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
    atomic_store(&loop->is_canceled, is_canceled);
    if (is_canceled) loop_interrupt(loop);
}

bool loop_has_canceled(loop *loop, const atomic_bool *flag) {
    return flag != NULL && (atomic_load(flag) || atomic_load(&loop->is_canceled));
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
    pass_on(loop);
    return true;
}
