/* SPDX-License-Identifier: BSD-3-Clause */
/* group.c - see group.h. */
#include "group.h"

#include <errno.h>
#include <signal.h>

static bool wakes_up(int signal) {
    return signal == SIGTERM || signal == SIGHUP || signal == SIGINT || signal == SIGQUIT;
}

void group_signal(pid_t group, int signal) {
    kill(-group, signal);
    if (wakes_up(signal)) kill(-group, SIGCONT);
}

bool group_is_there(pid_t group) {
    return kill(-group, 0) == 0 || errno == EPERM;
}
