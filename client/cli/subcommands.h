/* SPDX-License-Identifier: BSD-3-Clause */
/* subcommands.h - one function for each: the result is the exit code. The table is in main.c. */
#ifndef DLOCK_CLI_SUBCOMMANDS_H
#define DLOCK_CLI_SUBCOMMANDS_H

#include "request.h"

int run(request *request);
int claim_acquire(request *request);
int claim_release(request *request);
int claim_extend(request *request);
int claim_wait(request *request);
int inspect_info(request *request);
int inspect_list(request *request);
int session(request *request);
int watch(request *request);
int top(request *request);
int bench(request *request);
int metrics(request *request);

/* For "metrics --http" with a mistake in the configuration: reads the HTTP request and replies that
 * the tool cannot serve it. */
void metrics_decline(void);

#endif
