/* SPDX-License-Identifier: BSD-3-Clause */
/* run_signals.h - the signals of "dlock run", by a descriptor: none is lost, none interrupts.
 * Signals that were ignored at the start (nohup) stay so, for the command too. */
#ifndef DLOCK_CLI_RUN_SIGNALS_H
#define DLOCK_CLI_RUN_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

typedef struct run_signals {
    int fd;
    sigset_t original_mask;
} run_signals;

/* False: no descriptor. */
bool run_signals_open(run_signals *signals);

/* From now on ^Z (SIGTSTP) also comes by the descriptor, for the command. */
void run_signals_catch_stop(const run_signals *signals);

/* 0: none. */
int run_signals_next(const run_signals *signals);

#endif
