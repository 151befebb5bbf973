/* SPDX-License-Identifier: BSD-3-Clause */
/* run.h - "dlock run NAME -- command": the command runs while the lock is held. */
#ifndef DLOCK_CLI_RUN_H
#define DLOCK_CLI_RUN_H

#include "request.h"

int run(request *request);

#endif
