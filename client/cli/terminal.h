/* SPDX-License-Identifier: BSD-3-Clause */
/* terminal.h - the foreground of the terminal: the foreground group may read, and gets ^C and ^Z.
 * The caller must block SIGTTOU. */
#ifndef DLOCK_CLI_TERMINAL_H
#define DLOCK_CLI_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct terminal {
    int fd;        /* negative: there is none */
    pid_t lent_to; /* 0: to nobody */
} terminal;

void terminal_open(terminal *made);
void terminal_close(terminal *old);

/* Are stdin and stdout the terminal? In a pipe, another process may need the foreground. */
bool terminal_is_all_ours(const terminal *terminal);

/* False: there is no terminal, or the tool is in the background. */
bool terminal_lend(terminal *terminal, pid_t group);

/* Only if the group still has the foreground. */
void terminal_take_back(terminal *terminal);

#endif
