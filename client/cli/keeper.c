/* SPDX-License-Identifier: BSD-3-Clause */
/* keeper.c - see keeper.h.
 *
 *   take     acquire; then the runner starts the command and says which group it is
 *   keep     the library renews. If that does not work any more: SIGTERM to the group, and after a
 *            grace SIGKILL, a margin before the lock could be another's. If the server says that it
 *            is lost: SIGKILL at once
 *   end      the runner says so, or is gone (then SIGKILL first): release
 *
 * Of the two processes each one alone is enough to end the group in time: the runner sees until
 * when the lock is ours, and kills when that is over or the keeper is gone. */
#include "keeper.h"

#include "connect.h"
#include "group.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

/* How often in a lease the time is noted for the runner; how long before the end it is, as killing
 * takes time on a busy machine; and how long a killed group may take to vanish. */
enum { TIMES_PER_LEASE = 12, MARGINS_PER_LEASE = 10, MARGIN_MAX_MS = 500, VANISH_MS = 1000 };

typedef struct keeping {
    const request *asked;
    int fd;
    wire_times *times;
    dlock_lock *lock;
    pid_t group;
    int64_t margin_ms;
    int64_t kill_at_ms; /* fixed once SIGTERM was sent */
    bool is_ending, is_killed;
} keeping;

static atomic_int why_suspect; /* what the last renewal said */

/* For the handler: SIGTERM ends the wait. */
static dlock_lock *volatile awaited;
static volatile sig_atomic_t is_canceled;

static void on_sigterm(int number) {
    (void)number;
    is_canceled = 1;
    if (awaited != NULL) dlock_cancel(awaited);
}

static void on_event(void *arg, dlock_event event, const char *name, dlock_status why) {
    (void)arg;
    (void)name;
    if (event == DLOCK_EVENT_SUSPECT || event == DLOCK_EVENT_LOST)
        atomic_store(&why_suspect, (int)why);
}

static void set_kill_at(keeping *of, int64_t at_ms) {
    of->kill_at_ms = at_ms;
    atomic_store(&of->times->kill_at_ms, at_ms);
}

static void tell(const keeping *of, wire_kind kind, dlock_status status, const char *text) {
    wire_message message = {.kind = kind, .status = status};
    if (of->lock != NULL) message.fence = dlock_fence(of->lock);
    snprintf(message.text, sizeof(message.text), "%s", text);
    wire_send(of->fd, &message);
}

/* -- the end of the group */

static void kill_group(keeping *of) {
    group_signal(of->group, SIGKILL);
    of->is_killed = true;
}

static void end_group(keeping *of, int64_t left_ms) {
    bool is_gone = dlock_get_state(of->lock) == DLOCK_GONE;
    if (!of->is_ending) {
        char text[200];
        dlock_status why = (dlock_status)atomic_load(&why_suspect);
        snprintf(text, sizeof(text), "%s",
                 why == DLOCK_OK || why == DLOCK_LOST ? "" : dlock_status_text(why));
        of->is_ending = true;
        set_kill_at(of, wire_now_ms() + left_ms - of->margin_ms);
        if (!is_gone) group_signal(of->group, SIGTERM);
        tell(of, WIRE_LOST, is_gone ? DLOCK_LOST : DLOCK_UNREACHABLE, text);
    }
    if (is_gone || wire_now_ms() >= of->kill_at_ms) kill_group(of);
}

/* The runner is gone, and nobody else ends it. */
static void end_orphans(keeping *of) {
    kill_group(of);
    int64_t until_ms = wire_now_ms() + VANISH_MS;
    while (group_is_alive(of->group) && wire_now_ms() < until_ms)
        poll(NULL, 0, 1);
}

/* -- the life of the lock */

/* Until the runner says that it is over, or is gone. */
static void keep(keeping *of) {
    int64_t tick_ms = of->asked->lease_ms / TIMES_PER_LEASE;
    struct pollfd fds[2] = {{.fd = of->fd, .events = POLLIN},
                            {.fd = dlock_lost_fd(of->lock), .events = POLLIN}};
    for (;;) {
        int64_t now_ms = wire_now_ms(), left_ms = dlock_remaining_ms(of->lock);
        int64_t term_in_ms = left_ms - of->margin_ms - of->asked->grace_ms, wait_ms = tick_ms;
        if (!of->is_ending) set_kill_at(of, now_ms + left_ms - of->margin_ms);
        if (!of->is_killed && (of->is_ending || term_in_ms <= 0 || left_ms == 0))
            end_group(of, left_ms);
        if (of->is_ending && !of->is_killed && of->kill_at_ms - now_ms < wait_ms)
            wait_ms = of->kill_at_ms - now_ms;
        else if (!of->is_ending && term_in_ms < wait_ms)
            wait_ms = term_in_ms;
        if (of->is_killed) fds[1].fd = -1; /* it stays readable */
        if (poll(fds, 2, (int)(wait_ms > 0 ? wait_ms : 1)) < 0) continue;
        if (fds[0].revents == 0) continue;
        if (wire_receive(of->fd).kind == WIRE_END) end_orphans(of);
        return;
    }
}

/* False: the runner does not start the command, or not in time. */
static bool learn_group(keeping *of) {
    struct pollfd fd = {.fd = of->fd, .events = POLLIN};
    set_kill_at(of, wire_now_ms() + dlock_remaining_ms(of->lock) - of->margin_ms);
    tell(of, WIRE_GRANTED, DLOCK_OK, dlock_token(of->lock));
    int patience_ms = (int)(dlock_remaining_ms(of->lock) / 2);
    if (poll(&fd, 1, patience_ms) <= 0) return false;
    wire_message message = wire_receive(of->fd);
    of->group = message.group;
    return message.kind == WIRE_CHILD;
}

static dlock_status take(keeping *of) {
    awaited = of->lock;
    dlock_status status =
        is_canceled ? DLOCK_CANCELED : connect_acquire(of->lock, of->asked->wait_ms);
    awaited = NULL;
    if (status == DLOCK_OK && is_canceled) { /* too late to be noticed by acquire */
        dlock_release(of->lock);
        status = DLOCK_CANCELED;
    }
    return status;
}

/* The result is for DONE; text is why. */
static dlock_status hold(keeping *of, char *text, size_t size) {
    dlock_status status = take(of);
    if (status == DLOCK_OK) {
        if (learn_group(of)) keep(of);
        status = dlock_release(of->lock);
    }
    snprintf(text, size, "%s", dlock_last_error(of->lock));
    return status;
}

static dlock_status work(keeping of, const char *name, char *text, size_t size) {
    const request *asked = of.asked;
    int64_t part_ms = asked->lease_ms / MARGINS_PER_LEASE;
    of.margin_ms = part_ms < MARGIN_MAX_MS ? part_ms : MARGIN_MAX_MS;
    dlock_client *client;
    dlock_client_options options = connect_options(asked);
    options.on_event = on_event;
    if (asked->io_timeout_ms > asked->lease_ms / 4) /* else there is no second attempt */
        options.io_timeout_ms = (uint32_t)(asked->lease_ms / 4);
    dlock_lock_options how;
    dlock_lock_options_init(&how);
    how.lease_ms = (uint32_t)asked->lease_ms;
    how.renew_every_ms = (uint32_t)asked->lease_ms / 3;
    how.min_replicas = (uint32_t)asked->min_replicas;
    how.session = asked->is_session;
    dlock_status status = dlock_client_new(&client, &options);
    if (status != DLOCK_OK) return status;
    status = dlock_lock_new(&of.lock, client, name, &how);
    if (status == DLOCK_OK) status = hold(&of, text, size);
    if (of.lock == NULL && status == DLOCK_INVALID)
        snprintf(text, size, "the name is empty, or this kind of service has no such locks");
    dlock_lock_free(of.lock);
    dlock_client_free(client);
    return status;
}

/* -- public */

static void become_keeper(pid_t runner) {
    struct sigaction on_term = {.sa_handler = on_sigterm};
    sigset_t none;
    setsid(); /* what the terminal or a killed job is sent is not for us */
    sigaction(SIGTERM, &on_term, NULL);
    signal(SIGHUP, SIG_IGN);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* ends a wait; else the end of the stream does */
    if (getppid() != runner) is_canceled = 1;
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
}

bool keeper_start(keeper *made, const request *asked, const char *name) {
    int ends[2];
    made->times = wire_open(ends);
    if (made->times == NULL) return false;
    pid_t runner = getpid();
    made->pid = fork();
    made->fd = ends[0];
    if (made->pid != 0) {
        close(ends[1]);
        return made->pid > 0;
    }
    close(ends[0]);
    become_keeper(runner);
    wire_message done = {.kind = WIRE_DONE};
    keeping of = {.asked = asked, .fd = ends[1], .times = made->times};
    done.status = work(of, name, done.text, sizeof(done.text));
    wire_send(ends[1], &done);
    exit(EXIT_CODE_OK);
}

void keeper_cancel(const keeper *of) {
    kill(of->pid, SIGTERM);
}
