/* SPDX-License-Identifier: BSD-3-Clause */
/* child.h - the command of "dlock run": a child in its own process group, which dies with its
 * parent; the signals and the end of that group; and the foreground of the terminal, which may be
 * lent to it. */
#ifndef DLOCK_CLI_CHILD_H
#define DLOCK_CLI_CHILD_H

#include "keeper.h"
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* -- the command */

typedef struct child {
    pid_t pid; /* and its group; 0 or less: no child */
    int fd;    /* a socket: one byte to the child means go, one byte back means no command */
} child;

/* The command, its environment and its limits. */
typedef struct child_options {
    char *const *words;
    sigset_t mask; /* signals that the command blocks */
    const char *name, *token;
    uint64_t fence;          /* 0: none */
    const char *url;         /* where the lock is */
    const wire_times *times; /* the command does not begin after kill_at_ms */
} child_options;

/* The command does not begin before child_go(). */
child child_start(const child_options *options);

void child_go(child *child);

/* After the end of a child that was told to go. False: the command could not be executed. */
bool child_has_begun(child *child);

/* Ends a child that has not begun. */
void child_drop(child *child);

/* -- its group: the command and its descendants */

/* Stopped processes are continued, so that they receive the signal. */
void group_signal(pid_t group, int signal);

/* Does the group have a process that can still run? Zombies do not count: their parent may never
 * reap them. */
bool group_is_alive(pid_t group);

/* -- the terminal: its foreground group may read, and gets ^C and ^Z. The caller must block
 *    SIGTTOU */

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
