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

bool terminal_is_all_ours(const terminal *of) {
    return of->fd >= 0 && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

bool terminal_lend(terminal *of, pid_t group) {
    if (of->fd < 0 || tcgetpgrp(of->fd) != getpgrp()) return false;
    if (tcsetpgrp(of->fd, group) != 0) return false;
    of->lent_to = group;
    return true;
}

void terminal_take_back(terminal *of) {
    if (of->lent_to != 0 && tcgetpgrp(of->fd) == of->lent_to) tcsetpgrp(of->fd, getpgrp());
    of->lent_to = 0;
}
