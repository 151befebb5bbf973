/* SPDX-License-Identifier: BSD-3-Clause */
/* child.h - starts the command: a child in a process group of its own, which dies with us. */
#ifndef DLOCK_CLI_CHILD_H
#define DLOCK_CLI_CHILD_H

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct child {
    pid_t pid; /* and its group; not above 0: there is none */
    int go_fd;
} child;

/* It does not begin before child_go(). mask: which signals it blocks. */
child child_start(char *const words[], const sigset_t *mask, const char *name, const char *token,
                  uint64_t fence);

void child_go(child *of);

#endif
