/* SPDX-License-Identifier: BSD-3-Clause */
/* run.c - "dlock run NAME... -- command": the process that the shell sees, and the parent of the
 * command.
 *
 *   wait     the keeper (keeper.h) requests the lock; a signal ends the wait
 *   start    fork the command, which begins once the keeper has confirmed that the lock is held. If
 *            the lock was released meanwhile, because this process was stopped: wait again
 *   attend   signals are passed on to the group. When the command stops, stop too, so that the
 *            shell can go on; the keeper keeps the lock. When the keeper is gone or silent for too
 *            long, kill the group
 *   end      what is left of the group is ended, then the keeper gives the lock back
 *   explain  complaints come last, when nothing depends on this process any more
 *
 * One thread, and signals only by signalfd: things happen in the order of this file. */
#include "subcommands.h"

#include "child.h"
#include "complain.h"
#include "connect.h"
#include "keeper.h"
#include "url.h"
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long a keeper may take to give the lock back, beyond its timeouts. */
enum { RELEASE_MS = 5000, NOT_ENDED = -1 };

/* By a descriptor: none is lost, none interrupts. Signals that were ignored at the start (nohup)
 * stay so, for the command too. */
typedef struct run_signals {
    int fd;
    sigset_t original_mask;
} run_signals;

typedef struct running {
    const request *request;
    int name_count;
    const char *name; /* several: all of them, with blanks between */
    char **words;     /* the command */
    const char *url;
    keeper keeper;
    child child;
    terminal terminal;
    run_signals signals;
    int child_status; /* as of waitpid(2), or NOT_ENDED */
    int canceled_by;  /* a signal; 0: none */
    bool has_begun;   /* the command was executed */
    bool is_keeper_gone;
    char why_lost[400]; /* "": the lock is not lost */
} running;

static int64_t patience_ms(const running *running) {
    const request *request = running->request;
    return request->connect_timeout_ms + 2 * request->io_timeout_ms + RELEASE_MS;
}

/* -- signals */

static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH};

static bool is_ignored(int number) {
    struct sigaction now;
    return sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

static sigset_t wanted_signals(void) {
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
        if (!is_ignored(passed_on[i])) sigaddset(&wanted, passed_on[i]);
    return wanted;
}

/* False: no descriptor. */
static bool run_signals_open(run_signals *signals) {
    sigset_t wanted = wanted_signals(), blocked = wanted;
    signal(SIGCHLD, SIG_DFL);
    sigaddset(&blocked, SIGTTOU);
    sigaddset(&blocked, SIGPIPE); /* complaints that nobody reads */
    sigprocmask(SIG_BLOCK, &blocked, &signals->original_mask);
    signals->fd = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    return signals->fd >= 0;
}

/* From now on ^Z (SIGTSTP) also comes by the descriptor, for the command. */
static void run_signals_catch_stop(const run_signals *signals) {
    sigset_t wanted = wanted_signals(), stop;
    if (is_ignored(SIGTSTP)) return;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    sigaddset(&wanted, SIGTSTP);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    signalfd(signals->fd, &wanted, 0);
}

/* 0: none. */
static int run_signals_next(const run_signals *signals) {
    struct signalfd_siginfo info;
    bool is_read = read(signals->fd, &info, sizeof(info)) == sizeof(info);
    return is_read ? (int)info.ssi_signo : 0;
}

/* -- wait */

static void cancel(running *running) {
    int number;
    while ((number = run_signals_next(&running->signals)) != 0) {
        if (number == SIGCHLD || number == SIGWINCH) continue;
        if (running->canceled_by == 0) running->canceled_by = number;
        keeper_cancel(&running->keeper);
    }
}

/* The next message of the keeper. A keeper that does not react to a cancel is killed. */
static wire_message hear_keeper_or_signal(running *running) {
    struct pollfd fds[2] = {{.fd = running->signals.fd, .events = POLLIN},
                            {.fd = running->keeper.fd, .events = POLLIN}};
    int64_t kill_at_ms = 0;
    for (;;) {
        int64_t left_ms = kill_at_ms - wire_now_ms();
        if (kill_at_ms != 0 && left_ms <= 0) kill(running->keeper.pid, SIGKILL);
        if (poll(fds, 2, kill_at_ms == 0 ? -1 : (int)(left_ms > 1 ? left_ms : 1)) < 0) continue;
        if (fds[0].revents != 0) cancel(running);
        if (fds[1].revents != 0) return wire_receive(running->keeper.fd);
        if (running->canceled_by != 0 && kill_at_ms == 0)
            kill_at_ms = wire_now_ms() + patience_ms(running);
    }
}

/* The result: WIRE_GRANTED, WIRE_DONE or WIRE_END. */
static wire_message wait_for_grant(running *running) {
    wire_message message;
    while ((message = hear_keeper_or_signal(running)).kind == WIRE_WAITING)
        connect_show_wait(running->request, running->name, message.text);
    return message;
}

/* -- attend */

/* The command was stopped, and the shell should know. Without a terminal there is no shell to
 * tell, and whoever stopped the command may continue it. */
static void stop_too(running *running, int number) {
    bool wants_terminal = number == SIGTTIN || number == SIGTTOU;
    pid_t group = running->child.pid;
    if (running->terminal.fd < 0) return;
    if (wants_terminal && terminal_lend(&running->terminal, group)) {
        kill(-group, SIGCONT);
        return;
    }
    terminal_take_back(&running->terminal);
    kill(getpid(), SIGSTOP);
    /* From here on somebody has continued this process: "fg" with the terminal, "bg" without. */
    terminal_lend(&running->terminal, group);
    kill(-group, SIGCONT);
}

/* This process adopts orphans (see start()), so there may be more children than the command. */
static void look_after_children(running *running) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
        if (pid == running->keeper.pid && !WIFSTOPPED(status)) running->is_keeper_gone = true;
        if (pid != running->child.pid) continue;
        if (WIFSTOPPED(status))
            stop_too(running, WSTOPSIG(status));
        else
            running->child_status = status;
    }
}

static void pass_on_signals(running *running) {
    int number;
    while ((number = run_signals_next(&running->signals)) != 0) {
        if (number == SIGCHLD)
            look_after_children(running);
        else
            group_signal(running->child.pid, number);
    }
}

/* The first reason counts. */
static void lose(running *running, const char *why) {
    if (running->why_lost[0] == '\0')
        snprintf(running->why_lost, sizeof(running->why_lost), "%s", why);
}

static wire_message hear_keeper(running *running) {
    wire_message message = wire_receive(running->keeper.fd);
    if (message.kind == WIRE_END || message.kind == WIRE_DONE) running->is_keeper_gone = true;
    if (message.kind == WIRE_LOST && message.status == DLOCK_LOST)
        lose(running, "the server says that it is not ours any more");
    else if (message.kind == WIRE_LOST)
        lose(running, message.text[0] != '\0' ? message.text : "it was not renewed in time");
    return message;
}

static int64_t time_left_ms(const running *running) {
    return atomic_load(&running->keeper.times->kill_at_ms) - wire_now_ms();
}

/* The keeper does the same and knows more; the guard is for a keeper that cannot. */
static void guard(running *running) {
    bool is_late = time_left_ms(running) <= 0;
    if (!is_late && !running->is_keeper_gone) return;
    group_signal(running->child.pid, SIGKILL);
    lose(running,
         running->is_keeper_gone ? "the process that kept it is gone" : "its time is over");
}

/* Until something happens, but not for longer than limit_ms. */
static void listen_for(running *running, int64_t limit_ms) {
    struct pollfd fds[2] = {
        {.fd = running->signals.fd, .events = POLLIN},
        {.fd = running->is_keeper_gone ? -1 : running->keeper.fd, .events = POLLIN}};
    if (limit_ms > 1000 * 1000) limit_ms = 1000 * 1000;
    if (poll(fds, 2, (int)(limit_ms > 1 ? limit_ms : 1)) < 0) return;
    if (fds[1].revents != 0) hear_keeper(running);
    if (fds[0].revents != 0) pass_on_signals(running);
}

static void attend(running *running) {
    while (running->child_status == NOT_ENDED) {
        int64_t left_ms = time_left_ms(running);
        listen_for(running, left_ms > 0 && !running->is_keeper_gone ? left_ms : 10);
        if (running->child_status == NOT_ENDED) guard(running);
    }
}

/* -- start and end */

/* False: no process or descriptor is available. */
static bool start(running *running, const wire_message *granted) {
    child_options options = {.words = running->words,
                             .mask = running->signals.original_mask,
                             .name = running->name,
                             .token = granted->text,
                             .fence = granted->fence,
                             .url = running->url,
                             .times = running->keeper.times};
    running->child_status = NOT_ENDED;
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* so that the end of the whole group can be seen */
    running->child = child_start(&options);
    return running->child.pid > 0;
}

/* False: the lock is not held any more, or a signal has come; the child is gone. */
static bool begin(running *running, const wire_message *granted) {
    child *child = &running->child;
    wire_send(running->keeper.fd, &(wire_message){.kind = WIRE_CHILD, .group = child->pid});
    bool is_confirmed = hear_keeper_or_signal(running).kind == WIRE_GO;
    if (!is_confirmed || running->canceled_by != 0 || time_left_ms(running) <= 0) {
        child_drop(child);
        return false;
    }
    if (running->request->is_verbose)
        complain("%s: acquired with fence %" PRIu64, running->name, granted->fence);
    terminal_open(&running->terminal);
    run_signals_catch_stop(&running->signals);
    if (terminal_is_all_ours(&running->terminal)) terminal_lend(&running->terminal, child->pid);
    child_go(child);
    return true;
}

/* Processes that the command has left behind must not go on without the lock. */
static void end_rest(running *running) {
    pid_t group = running->child.pid;
    if (!group_is_alive(group)) return;
    int64_t kill_at_ms = wire_now_ms() + running->request->grace_ms;
    group_signal(group, SIGTERM);
    while (group_is_alive(group)) {
        bool is_late = wire_now_ms() >= kill_at_ms || time_left_ms(running) <= 0;
        if (is_late || running->is_keeper_gone) group_signal(group, SIGKILL);
        listen_for(running, 20);
    }
}

/* The fate of the lock; DLOCK_LOST if the keeper does not say. */
static wire_message part_with_keeper(running *running) {
    wire_message done = {.kind = WIRE_DONE, .status = DLOCK_LOST};
    struct pollfd fd = {.fd = running->keeper.fd, .events = POLLIN};
    int64_t until_ms = wire_now_ms() + patience_ms(running);
    wire_message release = {.kind = WIRE_RELEASE, .has_begun = running->has_begun};
    wire_send(running->keeper.fd, &release);
    for (int64_t now_ms; (now_ms = wire_now_ms()) < until_ms;) {
        if (poll(&fd, 1, (int)(until_ms - now_ms)) <= 0) continue;
        wire_message message = hear_keeper(running);
        if (message.kind == WIRE_DONE) return message;
        if (message.kind == WIRE_END) return done;
    }
    kill(running->keeper.pid, SIGKILL);
    return done;
}

static int code_of_child(int status) {
    return WIFSIGNALED(status) ? EXIT_CODE_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

static int attend_and_end(running *running) {
    attend(running);
    end_rest(running);
    running->has_begun = child_has_begun(&running->child);
    terminal_take_back(&running->terminal);
    terminal_close(&running->terminal);
    wire_message done = part_with_keeper(running);
    bool is_keeper_well = keeper_reap(&running->keeper);
    if (done.status == DLOCK_LOST) lose(running, "it had ended before the command did");
    if (running->why_lost[0] != '\0') {
        complain("%s: the lock is lost: %s", running->name, running->why_lost);
        return EXIT_CODE_LOST;
    }
    if (done.status != DLOCK_OK)
        complain_status(running->request,
                        running->request->at_least_ms > 0
                            ? "warning: the lock could not be kept or released; it ends by itself"
                            : "warning: the lock could not be released; it ends with its lease",
                        done.status, done.text);
    return is_keeper_well ? code_of_child(running->child_status) : EXIT_CODE_INTERNAL;
}

/* -- the lock was not acquired */

static int explain(const running *running, const wire_message *reply) {
    if (running->canceled_by != 0) return EXIT_CODE_SIGNAL + running->canceled_by;
    if (reply->kind == WIRE_DONE)
        return connect_explain(running->request, running->name, reply->status, reply->text);
    complain("%s: the process that holds the lock has died", running->name);
    return EXIT_CODE_INTERNAL;
}

static int give_up(running *running) {
    part_with_keeper(running);
    keeper_reap(&running->keeper);
    if (running->canceled_by != 0) return EXIT_CODE_SIGNAL + running->canceled_by;
    complain("no process or descriptor for the command");
    return EXIT_CODE_NO_RESOURCES;
}

/* Each round has a keeper of its own. A second round is needed only if this process was stopped
 * between the grant and the start until the lock was released. */
static int run_rounds(running *running) {
    int64_t wait_ms = running->request->wait_ms, until_ms = wire_now_ms() + wait_ms;
    for (;;) {
        running->is_keeper_gone = false;
        running->why_lost[0] = '\0';
        if (!keeper_start(&running->keeper, running->request, running->name_count, wait_ms)) {
            complain("no process or descriptor is available");
            return EXIT_CODE_NO_RESOURCES;
        }
        wire_message reply = wait_for_grant(running);
        if (reply.kind != WIRE_GRANTED) {
            keeper_reap(&running->keeper);
            return explain(running, &reply);
        }
        if (running->canceled_by != 0 || !start(running, &reply)) return give_up(running);
        if (begin(running, &reply)) return attend_and_end(running);
        if (running->canceled_by != 0) return give_up(running);
        part_with_keeper(running);
        keeper_reap(&running->keeper);
        if (wait_ms > 0) wait_ms = until_ms - wire_now_ms();
        if (wait_ms < 0 && running->request->wait_ms >= 0) wait_ms = DLOCK_NO_WAIT;
        if (running->request->is_verbose)
            complain("%s: the lock was lost before the command began", running->name);
    }
}

/* All words before the first "--" are names. Without a "--", the first word is the only name. The
 * result: where the command begins. */
static int find_command(running *running) {
    const request *request = running->request;
    for (int i = 1; i < request->word_count; i++)
        if (strcmp(request->words[i], "--") == 0) {
            running->name_count = i;
            return i + 1;
        }
    running->name_count = 1;
    return 1;
}

/* To be freed. NULL: no memory. */
static char *join_names(const running *running) {
    char **names = running->request->words;
    size_t size = 0;
    for (int i = 0; i < running->name_count; i++)
        size += strlen(names[i]) + 1;
    char *joined = calloc(1, size + 1);
    for (int i = 0; i < running->name_count && joined != NULL; i++) {
        if (i > 0) strcat(joined, " ");
        strcat(joined, names[i]);
    }
    return joined;
}

static int check_and_run(running *running, bool has_command) {
    const request *request = running->request;
    if (!has_command) {
        complain("no command; see dlock run --help");
        return EXIT_CODE_USAGE;
    }
    if (!connect_check(request)) return EXIT_CODE_USAGE;
    if (!run_signals_open(&running->signals)) {
        complain("no descriptor is available");
        return EXIT_CODE_NO_RESOURCES;
    }
    return run_rounds(running);
}

int run(request *request) {
    running running = {.request = request, .terminal = {.fd = -1}};
    int skipped = find_command(&running);
    char *name = join_names(&running);
    if (name == NULL) {
        complain("no memory");
        return EXIT_CODE_NO_RESOURCES;
    }
    running.name = name;
    running.words = request->words + skipped;
    running.url = url_write(request, request->is_url_passed);
    int code = check_and_run(&running, request->word_count > skipped);
    free(name);
    return code;
}
