/* SPDX-License-Identifier: BSD-3-Clause */
/* run_signals.c - see run_signals.h. */
#include "run_signals.h"

#include <stddef.h>
#include <sys/signalfd.h>
#include <unistd.h>

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

bool run_signals_open(run_signals *signals) {
    sigset_t wanted = wanted_signals(), blocked = wanted;
    signal(SIGCHLD, SIG_DFL);
    sigaddset(&blocked, SIGTTOU);
    sigaddset(&blocked, SIGPIPE); /* complaints that nobody reads */
    sigprocmask(SIG_BLOCK, &blocked, &signals->original_mask);
    signals->fd = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    return signals->fd >= 0;
}

void run_signals_catch_stop(const run_signals *signals) {
    sigset_t wanted = wanted_signals(), stop;
    if (is_ignored(SIGTSTP)) return;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    sigaddset(&wanted, SIGTSTP);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    signalfd(signals->fd, &wanted, 0);
}

int run_signals_next(const run_signals *signals) {
    struct signalfd_siginfo info;
    bool is_read = read(signals->fd, &info, sizeof(info)) == sizeof(info);
    return is_read ? (int)info.ssi_signo : 0;
}
