/* SPDX-License-Identifier: BSD-3-Clause */
/* keeper.h - the process that takes the lock for "dlock run", renews and releases it.
 *
 * The keeper is neither the process that the shell sees nor the parent of the command. So it works
 * on while the runner is stopped (^Z), and ends the command and gives the lock back if the runner
 * is killed. */
#ifndef DLOCK_CLI_KEEPER_H
#define DLOCK_CLI_KEEPER_H

#include "request.h"
#include "wire.h"

typedef struct keeper {
    pid_t pid;
    int fd; /* see wire.h */
    wire_times *times;
} keeper;

/* Before any thread. wait_ms: as of dlock_acquire(). False: no process or descriptor. */
bool keeper_start(keeper *keeper, const request *request, const char *name, int64_t wait_ms);

/* Ends the wait for the lock. */
void keeper_cancel(const keeper *keeper);

/* After the last message. True: the keeper ended as it should. */
bool keeper_reap(const keeper *keeper);

#endif
