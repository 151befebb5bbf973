/* SPDX-License-Identifier: BSD-3-Clause */
/* terminal.c - see terminal.h. */
#include "terminal.h"

#include <fcntl.h>
#include <unistd.h>

void terminal_open(terminal *made) {
    *made = (terminal){.fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)};
}

void terminal_close(terminal *old) {
    if (old->fd >= 0) close(old->fd);
    old->fd = -1;
}

bool terminal_is_all_ours(const terminal *terminal) {
    return terminal->fd >= 0 && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

bool terminal_lend(terminal *terminal, pid_t group) {
    if (terminal->fd < 0 || tcgetpgrp(terminal->fd) != getpgrp()) return false;
    if (tcsetpgrp(terminal->fd, group) != 0) return false;
    terminal->lent_to = group;
    return true;
}

void terminal_take_back(terminal *terminal) {
    if (terminal->lent_to != 0 && tcgetpgrp(terminal->fd) == terminal->lent_to)
        tcsetpgrp(terminal->fd, getpgrp());
    terminal->lent_to = 0;
}
