/* SPDX-License-Identifier: BSD-3-Clause */
/* child.h - starts the command: a child in its own process group, which dies with its parent. */
#ifndef DLOCK_CLI_CHILD_H
#define DLOCK_CLI_CHILD_H

#include "wire.h"
#include <signal.h>
#include <stdint.h>

typedef struct child {
    pid_t pid; /* and its group; 0 or less: no child */
    int fd;    /* a socket: one byte to the child means go, one byte back means no command */
} child;

/* The command, its environment and its limits. */
typedef struct child_options {
    char *const *words;
    sigset_t mask; /* signals that the command blocks */
    const char *name, *token;
    uint64_t fence;
    bool has_url;            /* DLOCK_URL stays in the environment even with a password */
    const wire_times *times; /* the command does not begin after kill_at_ms */
} child_options;

/* The command does not begin before child_go(). */
child child_start(const child_options *options);

void child_go(child *child);

/* After the end of a child that was told to go. False: the command could not be executed. */
bool child_has_begun(child *child);

/* Ends a child that has not begun. */
void child_drop(child *child);

#endif
