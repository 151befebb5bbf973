/* SPDX-License-Identifier: BSD-3-Clause */
/* terminal.h - whose turn it is at the terminal: the group that is in the foreground may read from
 * it and gets its ^C and ^Z. SIGTTOU must be blocked by the caller. */
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

/* Both ends of us are at the terminal, not in a pipe with others who may need it. */
bool terminal_is_all_ours(const terminal *terminal);

/* False: it is not ours to give, as we are in the background or have none. */
bool terminal_lend(terminal *terminal, pid_t group);

/* If it was lent, and nobody else has it meanwhile. */
void terminal_take_back(terminal *terminal);

#endif
