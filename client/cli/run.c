/* SPDX-License-Identifier: BSD-3-Clause */
/* run.c - see run.h: the process that the shell sees, the parent of the command.
 *
 *   wait     the keeper (keeper.h) asks for the lock; a signal ends the wait
 *   start    the command in a group of its own, with the terminal if it is ours
 *   attend   signals are passed on to the group; when the command stops, we stop too, so that the
 *            shell can go on, and the keeper keeps the lock; when the keeper is gone or silent for
 *            too long, the group is killed
 *   end      what is left of the group is ended, then the keeper gives the lock back
 *
 * One thread, and signals only by signalfd: the order of things is the order in this file. */
#include "run.h"

#include "child.h"
#include "complain.h"
#include "connect.h"
#include "group.h"
#include "keeper.h"
#include "terminal.h"
#include <poll.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a keeper may take to give the lock back, beyond its timeouts. */
enum { FAREWELL_MS = 5000, NOT_ENDED = -1 };

static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH};

typedef struct running {
    const request *asked;
    const char *name;
    keeper by;
    child of;
    terminal at;
    sigset_t original_mask;
    int signal_fd;
    int child_status; /* as of waitpid(2), or NOT_ENDED */
    int canceled_by;  /* a signal; 0: none */
    bool is_lost, is_keeper_gone;
} running;

/* -- signals */

static bool is_ignored(int number) {
    struct sigaction now;
    return sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

/* What is ignored (nohup) stays so, for us and for the command. */
static bool open_signals(running *of) {
    sigset_t wanted;
    sigemptyset(&wanted);
    for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
        if (!is_ignored(passed_on[i])) sigaddset(&wanted, passed_on[i]);
    signal(SIGCHLD, SIG_DFL);
    sigaddset(&wanted, SIGCHLD);
    sigset_t blocked = wanted;
    sigaddset(&blocked, SIGTTOU);
    sigaddset(&blocked, SIGPIPE); /* complaints that nobody reads */
    sigprocmask(SIG_BLOCK, &blocked, &of->original_mask);
    of->signal_fd = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    return of->signal_fd >= 0;
}

/* Once the command runs, ^Z is for it. */
static void catch_tstp(const running *of) {
    sigset_t wanted;
    if (is_ignored(SIGTSTP)) return;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTSTP);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
        if (!is_ignored(passed_on[i])) sigaddset(&wanted, passed_on[i]);
    sigaddset(&wanted, SIGCHLD);
    signalfd(of->signal_fd, &wanted, 0);
}

/* 0: none. */
static int next_signal(const running *of) {
    struct signalfd_siginfo info;
    return read(of->signal_fd, &info, sizeof(info)) == sizeof(info) ? (int)info.ssi_signo : 0;
}

/* -- wait */

/* The answer: WIRE_GRANTED, WIRE_DONE or WIRE_END. */
static wire_message wait_for_grant(running *of) {
    struct pollfd fds[2] = {{.fd = of->signal_fd, .events = POLLIN},
                            {.fd = of->by.fd, .events = POLLIN}};
    for (;;) {
        if (poll(fds, 2, -1) < 0) continue;
        int number;
        while ((number = next_signal(of)) != 0) {
            if (number == SIGCHLD || number == SIGWINCH) continue;
            of->canceled_by = number;
            keeper_cancel(&of->by);
        }
        if (fds[1].revents != 0) return wire_receive(of->by.fd);
    }
}

/* -- attend */

/* The command was stopped, and the shell should know. Without a terminal there is no shell to
 * tell, and whoever stopped it may let it go on. */
static void stop_too(running *of, int number) {
    bool wants_terminal = number == SIGTTIN || number == SIGTTOU;
    if (of->at.fd < 0) return;
    if (wants_terminal && terminal_lend(&of->at, of->of.pid)) {
        kill(-of->of.pid, SIGCONT);
        return;
    }
    terminal_take_back(&of->at);
    kill(getpid(), SIGSTOP);
    /* Here somebody lets us go on: "fg" with the terminal, "bg" without. */
    terminal_lend(&of->at, of->of.pid);
    kill(-of->of.pid, SIGCONT);
}

/* As we adopt orphans (see start()), there may be others than the command. */
static void look_after_children(running *of) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
        if (pid == of->by.pid && !WIFSTOPPED(status)) of->is_keeper_gone = true;
        if (pid != of->of.pid) continue;
        if (WIFSTOPPED(status))
            stop_too(of, WSTOPSIG(status));
        else
            of->child_status = status;
    }
}

static void pass_on_signals(running *of) {
    int number;
    while ((number = next_signal(of)) != 0) {
        if (number == SIGCHLD)
            look_after_children(of);
        else
            group_signal(of->of.pid, number);
    }
}

/* It was said, or can be seen, that the lock is not ours much longer. */
static void lose(running *of, const char *why) {
    if (!of->is_lost) complain("%s: the lock is lost: %s", of->name, why);
    of->is_lost = true;
}

static wire_message hear_keeper(running *of) {
    wire_message message = wire_receive(of->by.fd);
    if (message.kind != WIRE_LOST) of->is_keeper_gone = true;
    if (message.kind == WIRE_LOST && message.status == DLOCK_LOST)
        lose(of, "the server says that it is not ours any more");
    else if (message.kind == WIRE_LOST)
        lose(of, message.text[0] != '\0' ? message.text : "it was not renewed in time");
    return message;
}

static int64_t time_left_ms(const running *of) {
    return atomic_load(&of->by.times->kill_at_ms) - wire_now_ms();
}

/* The keeper does the same, and knows more; this is for when it cannot. */
static void guard(running *of) {
    bool is_late = time_left_ms(of) <= 0;
    if (!is_late && !of->is_keeper_gone) return;
    lose(of, of->is_keeper_gone ? "the process that kept it is gone" : "its time is over");
    group_signal(of->of.pid, SIGKILL);
}

/* Until something happens, but not for longer than that. */
static void listen_for(running *of, int64_t limit_ms) {
    struct pollfd fds[2] = {{.fd = of->signal_fd, .events = POLLIN},
                            {.fd = of->is_keeper_gone ? -1 : of->by.fd, .events = POLLIN}};
    if (limit_ms > 1000 * 1000) limit_ms = 1000 * 1000;
    if (poll(fds, 2, (int)(limit_ms > 1 ? limit_ms : 1)) < 0) return;
    if (fds[1].revents != 0) hear_keeper(of);
    if (fds[0].revents != 0) pass_on_signals(of);
}

static void attend(running *of) {
    while (of->child_status == NOT_ENDED) {
        int64_t left_ms = time_left_ms(of);
        listen_for(of, left_ms > 0 && !of->is_keeper_gone ? left_ms : 10);
        if (of->child_status == NOT_ENDED) guard(of);
    }
}

/* -- start and end */

static bool start(running *of, const wire_message *granted) {
    of->child_status = NOT_ENDED;
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* so that what is left of the group can be seen to end */
    terminal_open(&of->at);
    catch_tstp(of);
    char **words = of->asked->words + 1;
    of->of = child_start(words, &of->original_mask, of->name, granted->text, granted->fence);
    if (of->of.pid <= 0) return false;
    if (terminal_is_all_ours(&of->at)) terminal_lend(&of->at, of->of.pid);
    wire_send(of->by.fd, &(wire_message){.kind = WIRE_CHILD, .group = of->of.pid});
    child_go(&of->of);
    return true;
}

/* What the command has left behind must not go on without the lock. */
static void end_rest(running *of) {
    pid_t group = of->of.pid;
    if (!group_is_alive(group)) return;
    int64_t kill_at_ms = wire_now_ms() + of->asked->grace_ms;
    group_signal(group, SIGTERM);
    while (group_is_alive(group)) {
        bool is_late = wire_now_ms() >= kill_at_ms || time_left_ms(of) <= 0;
        if (is_late || of->is_keeper_gone) group_signal(group, SIGKILL);
        listen_for(of, 20);
    }
}

/* What became of the lock; DLOCK_LOST if the keeper does not say. */
static wire_message part_with_keeper(running *of) {
    wire_message done = {.kind = WIRE_DONE, .status = DLOCK_LOST};
    struct pollfd fd = {.fd = of->by.fd, .events = POLLIN};
    int64_t patience_ms = of->asked->connect_timeout_ms + 2 * of->asked->io_timeout_ms;
    int64_t until_ms = wire_now_ms() + patience_ms + FAREWELL_MS;
    wire_send(of->by.fd, &(wire_message){.kind = WIRE_RELEASE});
    for (int64_t now_ms; (now_ms = wire_now_ms()) < until_ms;) {
        if (poll(&fd, 1, (int)(until_ms - now_ms)) <= 0) continue;
        wire_message message = hear_keeper(of);
        if (message.kind == WIRE_DONE) return message;
        if (message.kind == WIRE_END) return done;
    }
    kill(of->by.pid, SIGKILL);
    return done;
}

/* True: it ended as it should. */
static bool reap_keeper(const running *of) {
    int status = 0;
    close(of->by.fd);
    if (waitpid(of->by.pid, &status, 0) != of->by.pid) return true; /* done before */
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int code_of_child(int status) {
    return WIFSIGNALED(status) ? EXIT_CODE_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

static int attend_and_end(running *of) {
    attend(of);
    end_rest(of);
    terminal_take_back(&of->at);
    terminal_close(&of->at);
    wire_message done = part_with_keeper(of);
    bool is_keeper_well = reap_keeper(of);
    if (done.status == DLOCK_LOST) lose(of, "it had ended before the command did");
    if (of->is_lost) return EXIT_CODE_LOST;
    if (done.status != DLOCK_OK)
        complain_status("warning: the lock could not be given back, its lease must end",
                        done.status, done.text);
    return is_keeper_well ? code_of_child(of->child_status) : EXIT_CODE_INTERNAL;
}

/* It was not got. */
static int explain(const running *of, const wire_message *answer) {
    if (answer->kind != WIRE_DONE) {
        complain("%s: the process that asks for the lock has died", of->name);
        return EXIT_CODE_INTERNAL;
    }
    if (answer->status == DLOCK_CANCELED && of->canceled_by != 0)
        return EXIT_CODE_SIGNAL + of->canceled_by;
    bool is_busy = answer->status == DLOCK_BUSY || answer->status == DLOCK_TIMEOUT;
    if (is_busy) return (int)of->asked->busy_code; /* as flock(1): the code says it */
    return (int)complain_status(of->name, answer->status, answer->text);
}

int run(request *asked) {
    running of = {.asked = asked, .name = asked->words[0], .at = {.fd = -1}};
    if (asked->word_count > 1 && strcmp(asked->words[1], "--") == 0) {
        asked->words++; /* the name is not needed there any more */
        asked->word_count--;
    }
    if (asked->word_count < 2) {
        complain("no command; see dlock run --help");
        return EXIT_CODE_USAGE;
    }
    if (!connect_check(asked)) return EXIT_CODE_USAGE;
    if (!open_signals(&of) || !keeper_start(&of.by, asked, of.name)) {
        complain("no process or descriptor to be had");
        return EXIT_CODE_NO_RESOURCES;
    }
    wire_message answer = wait_for_grant(&of);
    if (answer.kind != WIRE_GRANTED) {
        reap_keeper(&of);
        return explain(&of, &answer);
    }
    if (of.canceled_by == 0 && start(&of, &answer)) return attend_and_end(&of);
    part_with_keeper(&of);
    reap_keeper(&of);
    if (of.canceled_by != 0) return EXIT_CODE_SIGNAL + of.canceled_by; /* a moment too late */
    complain("no process or descriptor for the command");
    return EXIT_CODE_NO_RESOURCES;
}
