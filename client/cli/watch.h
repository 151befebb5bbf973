/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.h - "dlock watch": a line for each change of the holder of a lock. */
#ifndef DLOCK_CLI_WATCH_H
#define DLOCK_CLI_WATCH_H

#include "request.h"

int watch(request *request);

#endif
