/* SPDX-License-Identifier: BSD-3-Clause */
/* keeper.c - see keeper.h.
 *
 *   take     acquire, and extend: if the server refuses that, now or later, the command must not
 *            begin. Then the runner forks the command and says which group it is
 *   confirm  if the lock is still held: GO. A runner that does not reply within half of the
 *            validity is stopped: the lock is released, and the runner begins anew
 *   keep     the library renews. If renewal fails: SIGTERM to the group, and after a grace SIGKILL,
 *            a margin before another could get the lock. If the server says that the lock is lost:
 *            SIGKILL at once
 *   end      the runner says so, or is gone (then SIGKILL first): release; before --at-least is
 *            over, extend to that time instead
 *
 * Each of the two processes alone can end the group in time: the runner sees kill_at_ms, and kills
 * when that time has come or the keeper is gone. */
#include "keeper.h"

#include "child.h"
#include "complain.h"
#include "connect.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* -- messages */

wire_times *wire_open(int ends[2]) {
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return NULL;
    void *shared =
        mmap(NULL, sizeof(wire_times), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared != MAP_FAILED) return shared;
    close(ends[0]);
    close(ends[1]);
    return NULL;
}

void wire_close(int fd, wire_times *times) {
    close(fd);
    munmap(times, sizeof(*times));
}

void wire_send(int fd, const wire_message *message) {
    /* Reading tells whether the partner is gone; a partner that does not read is not waited for. */
    while (send(fd, message, sizeof(*message), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EINTR)
        continue;
}

wire_message wire_receive(int fd) {
    wire_message message;
    ssize_t size;
    do
        size = recv(fd, &message, sizeof(message), 0);
    while (size < 0 && errno == EINTR);
    if (size != (ssize_t)sizeof(message)) return (wire_message){.kind = WIRE_END};
    return message;
}

int64_t wire_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* How often in a lease kill_at_ms is noted for the runner; the margin before the end of the
 * validity, as killing takes time on a busy machine; how long a killed group may take to vanish. */
enum { TIMES_PER_LEASE = 12, MARGINS_PER_LEASE = 10, MARGIN_MAX_MS = 500, VANISH_MS = 1000 };
enum { LEFT_MIN_MS = 10 }; /* the library wants leases of at least that */
enum { RENEWALS_PER_LEASE = 4, SESSION_LEASES = 3, SESSION_MAX_MS = 24 * 60 * 60 * 1000 };

typedef struct keeping {
    const request *request;
    int name_count; /* the first words of the request */
    int fd;
    wire_times *times;
    dlock_client *client;
    dlock_lock *lock;
    int64_t wait_ms, granted_ms;
    pid_t group; /* 0: the command has not begun */
    int64_t margin_ms;
    int64_t kill_at_ms; /* fixed once SIGTERM was sent */
    bool is_ending, is_killed;
    bool is_left; /* --at-least: the lock is held when the process ends */
} keeping;

static atomic_int why_suspect; /* the result of the last renewal */

static void on_event(void *arg, dlock_event event, const char *name, dlock_status why) {
    (void)arg;
    (void)name;
    if (event == DLOCK_EVENT_SUSPECT || event == DLOCK_EVENT_LOST)
        atomic_store(&why_suspect, (int)why);
}

static void set_kill_at(keeping *keeping, int64_t at_ms) {
    keeping->kill_at_ms = at_ms;
    atomic_store(&keeping->times->kill_at_ms, at_ms);
}

static void tell(const keeping *keeping, wire_kind kind, dlock_status status, const char *text) {
    wire_message message = {.kind = kind, .status = status};
    if (keeping->lock != NULL) message.fence = dlock_fence(keeping->lock);
    snprintf(message.text, sizeof(message.text), "%s", text);
    wire_send(keeping->fd, &message);
}

/* -- the end of the group */

static void kill_group(keeping *keeping) {
    group_signal(keeping->group, SIGKILL);
    keeping->is_killed = true;
}

/* Why renewals fail. A server that refused says why if it is asked again; events have only the
 * status. */
static void describe_failure(keeping *keeping, char *text, size_t size) {
    dlock_status why = (dlock_status)atomic_load(&why_suspect);
    bool is_known = why != DLOCK_OK && why != DLOCK_LOST;
    snprintf(text, size, "%s", is_known ? dlock_status_text(why) : "");
    if (why == DLOCK_REFUSED && dlock_extend(keeping->lock, 0) == DLOCK_REFUSED)
        snprintf(text, size, "%s (%s)", dlock_status_text(why), dlock_last_error(keeping->lock));
}

static void end_group(keeping *keeping, int64_t left_ms) {
    bool is_gone = dlock_get_state(keeping->lock) == DLOCK_STATE_LOST;
    if (is_gone) kill_group(keeping);
    if (!keeping->is_ending) {
        char why[sizeof(((wire_message *)0)->text)];
        keeping->is_ending = true;
        set_kill_at(keeping, wire_now_ms() + left_ms - keeping->margin_ms);
        if (!is_gone) group_signal(keeping->group, SIGTERM);
        describe_failure(keeping, why, sizeof(why));
        tell(keeping, WIRE_LOST, is_gone ? DLOCK_LOST : DLOCK_UNREACHABLE, why);
    }
    if (wire_now_ms() >= keeping->kill_at_ms) kill_group(keeping);
}

/* The runner is gone, so nobody else ends the group. */
static void end_orphans(keeping *keeping) {
    kill_group(keeping);
    int64_t until_ms = wire_now_ms() + VANISH_MS;
    while (group_is_alive(keeping->group) && wire_now_ms() < until_ms)
        poll(NULL, 0, 1);
}

/* -- the life of the lock */

/* Until the runner says that the group has ended, or is gone. */
static void keep(keeping *keeping) {
    int64_t tick_ms = keeping->request->lease_ms / TIMES_PER_LEASE;
    struct pollfd fds[2] = {{.fd = keeping->fd, .events = POLLIN},
                            {.fd = dlock_lost_fd(keeping->lock), .events = POLLIN}};
    for (;;) {
        int64_t now_ms = wire_now_ms(), left_ms = dlock_remaining_ms(keeping->lock);
        int64_t term_in_ms = left_ms - keeping->margin_ms - keeping->request->grace_ms;
        int64_t wait_ms = tick_ms;
        if (!keeping->is_ending) set_kill_at(keeping, now_ms + left_ms - keeping->margin_ms);
        if (!keeping->is_killed && (keeping->is_ending || term_in_ms <= 0 || left_ms == 0))
            end_group(keeping, left_ms);
        if (keeping->is_ending && !keeping->is_killed && keeping->kill_at_ms - now_ms < wait_ms)
            wait_ms = keeping->kill_at_ms - now_ms;
        else if (!keeping->is_ending && term_in_ms < wait_ms)
            wait_ms = term_in_ms;
        if (keeping->is_killed) fds[1].fd = -1; /* the descriptor stays readable */
        if (poll(fds, 2, (int)(wait_ms > 0 ? wait_ms : 1)) < 0) continue;
        if (fds[0].revents == 0) continue;
        wire_message message = wire_receive(keeping->fd);
        if (message.kind == WIRE_END) end_orphans(keeping);
        if (message.kind == WIRE_RELEASE && !message.has_begun) keeping->group = 0;
        return;
    }
}

/* False: the runner does not start the command, or not in time. */
static bool confirm(keeping *keeping) {
    struct pollfd fd = {.fd = keeping->fd, .events = POLLIN};
    int64_t half_ms = dlock_remaining_ms(keeping->lock) / 2, until_ms = wire_now_ms() + half_ms;
    set_kill_at(keeping, wire_now_ms() + dlock_remaining_ms(keeping->lock) - keeping->margin_ms);
    tell(keeping, WIRE_GRANTED, DLOCK_OK, dlock_token(keeping->lock));
    for (int64_t left_ms; (left_ms = until_ms - wire_now_ms()) > 0;) {
        if (poll(&fd, 1, (int)left_ms) <= 0) continue;
        wire_message message = wire_receive(keeping->fd);
        if (message.kind != WIRE_CHILD) return false;
        if (dlock_remaining_ms(keeping->lock) <= keeping->margin_ms) return false;
        keeping->group = message.group;
        tell(keeping, WIRE_GO, DLOCK_OK, "");
        return true;
    }
    return false;
}

/* The holder of the first name that is held. */
static void describe_holder(const keeping *keeping, char *text, size_t size) {
    text[0] = '\0';
    for (int i = 0; i < keeping->name_count && text[0] == '\0'; i++)
        holder_describe(keeping->client, keeping->request, keeping->request->words[i], text, size);
}

static void on_busy(void *arg) {
    keeping *keeping = arg;
    char text[sizeof(((wire_message *)0)->text)];
    describe_holder(keeping, text, sizeof(text));
    tell(keeping, WIRE_WAITING, DLOCK_BUSY, text);
}

/* Extends the lock to --at-least: the lock is kept even if both processes are killed. By the token,
 * so that the handle keeps its own lease and renews as often as without --at-least. */
static dlock_status reserve(keeping *keeping, char *text, size_t size) {
    char why[300] = "";
    dlock_status status = DLOCK_OK;
    for (int i = 0; i < keeping->name_count && status == DLOCK_OK; i++)
        status = dlock_extend_token(keeping->client, keeping->request->words[i],
                                    dlock_token(keeping->lock),
                                    (uint32_t)keeping->request->at_least_ms, why, sizeof(why));
    snprintf(text, size, "--at-least: %s", why);
    /* With DLOCK_NOT_HELD, the handle has to know of the loss: then confirm() fails. */
    return status == DLOCK_NOT_HELD ? dlock_extend(keeping->lock, 0) : status;
}

/* Extends the lock before the command begins. A user who may acquire but not extend, and a time
 * that the server does not allow, are noticed now, not when the lease ends. Other failures may
 * pass: without --at-least they are left to the renewal. */
static dlock_status check_extension(keeping *keeping, char *text, size_t size) {
    const request *request = keeping->request;
    if (request->at_least_ms > request->lease_ms) {
        dlock_status status = reserve(keeping, text, size);
        return status == DLOCK_LOST ? DLOCK_OK : status;
    }
    dlock_status status = dlock_extend(keeping->lock, 0);
    snprintf(text, size, "%s", dlock_last_error(keeping->lock));
    return status == DLOCK_REFUSED ? status : DLOCK_OK;
}

/* A command that has begun keeps others away for --at-least, however fast it was. */
static dlock_status give_back(keeping *keeping) {
    int64_t left_ms = keeping->granted_ms + keeping->request->at_least_ms - wire_now_ms();
    if (keeping->group == 0 || left_ms < LEFT_MIN_MS) return dlock_release(keeping->lock);
    dlock_status status = dlock_extend(keeping->lock, (uint32_t)left_ms);
    keeping->is_left = status != DLOCK_LOST;
    return status;
}

/* The result is for DONE; text is the cause, or the holder. */
static dlock_status hold(keeping *keeping, char *text, size_t size) {
    bool is_verbose = keeping->request->is_verbose;
    dlock_status status = cancel_acquire(keeping->request, keeping->client, keeping->lock,
                                         keeping->wait_ms, is_verbose ? on_busy : NULL, keeping);
    keeping->granted_ms = wire_now_ms();
    if (status == DLOCK_OK) {
        status = check_extension(keeping, text, size);
        if (status != DLOCK_OK) {
            dlock_release(keeping->lock);
            return status;
        }
        if (confirm(keeping)) keep(keeping);
        status = give_back(keeping);
    }
    if (status == DLOCK_BUSY || status == DLOCK_TIMEOUT)
        describe_holder(keeping, text, size);
    else
        snprintf(text, size, "%s", dlock_last_error(keeping->lock));
    return status;
}

/* With --session the lock lasts no longer than the session of the client. The reply to a heartbeat
 * comes a third of the session's timeout after the heartbeat, so only a third of the timeout may be
 * left: as long as the lease, then, so that the lease alone says when the command has to end. */
static uint32_t session_timeout_ms(const request *request) {
    int64_t timeout_ms = SESSION_LEASES * request->lease_ms;
    return (uint32_t)(timeout_ms < SESSION_MAX_MS ? timeout_ms : SESSION_MAX_MS);
}

/* The lock has a lease of its own: the library leaves only renewals at every third of a lease to
 * the session, where too little of the lease would be left for a long grace, and which --at-least
 * is to outlive. text: why there is no such lock. */
static dlock_status open_lock(keeping *keeping, char *text, size_t size) {
    const request *request = keeping->request;
    bool is_session = request->is_session || request->is_session_by_url;
    dlock_lock_options usual;
    dlock_lock_options_init(&usual);
    if (is_session) usual.lease_ms = session_timeout_ms(request);
    dlock_client_options options = connect_options(request);
    options.lock_defaults = &usual;
    options.on_event = on_event;
    if (request->io_timeout_ms > request->lease_ms / 4) /* leave time for a second attempt */
        options.io_timeout_ms = (uint32_t)(request->lease_ms / 4);
    dlock_lock_options how = connect_lock_options(request);
    how.renew_every_ms = (uint32_t)request->lease_ms / RENEWALS_PER_LEASE;
    how.session = request->is_session;
    dlock_status status = dlock_client_new(&keeping->client, &options);
    if (status == DLOCK_OK)
        status =
            dlock_lock_new_all(&keeping->lock, keeping->client, (const char *const *)request->words,
                               (size_t)keeping->name_count, &how);
    snprintf(text, size, "%s", dlock_error());
    return status;
}

static void work(keeping *keeping, wire_message *done) {
    int64_t part_ms = keeping->request->lease_ms / MARGINS_PER_LEASE;
    keeping->margin_ms = part_ms < MARGIN_MAX_MS ? part_ms : MARGIN_MAX_MS;
    done->status = open_lock(keeping, done->text, sizeof(done->text));
    if (done->status == DLOCK_OK) done->status = hold(keeping, done->text, sizeof(done->text));
    if (keeping->is_left) return; /* freeing the handle would release the lock */
    dlock_lock_free(keeping->lock);
    dlock_client_free(keeping->client);
}

/* -- public */

static void become_keeper(pid_t runner) {
    sigset_t none;
    setsid(); /* signals of the terminal and of a killed job are not for the keeper */
    cancel_catch((const int[]){SIGTERM, 0});
    signal(SIGHUP, SIG_IGN);
    sigemptyset(&none);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* ends a wait; later the end of the stream is noticed */
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (getppid() != runner) raise(SIGTERM);
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
}

bool keeper_start(keeper *keeper, const request *request, int name_count, int64_t wait_ms) {
    int ends[2];
    keeper->times = wire_open(ends);
    if (keeper->times == NULL) return false;
    pid_t runner = getpid();
    keeper->pid = fork();
    keeper->fd = ends[0];
    if (keeper->pid != 0) {
        close(ends[1]);
        return keeper->pid > 0;
    }
    close(ends[0]);
    become_keeper(runner);
    wire_message done = {.kind = WIRE_DONE};
    keeping keeping = {.request = request,
                       .name_count = name_count,
                       .fd = ends[1],
                       .times = keeper->times,
                       .wait_ms = wait_ms};
    work(&keeping, &done);
    wire_send(ends[1], &done);
    if (keeping.is_left) _exit(EXIT_CODE_OK);
    exit(EXIT_CODE_OK);
}

void keeper_cancel(const keeper *keeper) {
    kill(keeper->pid, SIGTERM);
}

bool keeper_reap(const keeper *keeper) {
    int status = 0;
    pid_t pid;
    wire_close(keeper->fd, keeper->times);
    do
        pid = waitpid(keeper->pid, &status, 0);
    while (pid < 0 && errno == EINTR);
    if (pid != keeper->pid) return true; /* reaped before */
    return WIFEXITED(status) && WEXITSTATUS(status) == EXIT_CODE_OK;
}
