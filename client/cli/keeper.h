/* SPDX-License-Identifier: BSD-3-Clause */
/* keeper.h - the process that takes the lock for "dlock run", renews it and gives it back.
 *
 * It is not the one that the shell sees, nor the parent of the command: so it goes on when that one
 * is stopped (^Z), and when it is killed, the keeper ends the command and gives the lock back. */
#ifndef DLOCK_CLI_KEEPER_H
#define DLOCK_CLI_KEEPER_H

#include "request.h"
#include "wire.h"

typedef struct keeper {
    pid_t pid;
    int fd; /* see wire.h */
    wire_times *times;
} keeper;

/* Before any thread. False: no process or descriptor to be had. */
bool keeper_start(keeper *made, const request *asked, const char *name);

/* The wait for the lock ends. */
void keeper_cancel(const keeper *of);

#endif
