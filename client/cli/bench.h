/* SPDX-License-Identifier: BSD-3-Clause */
/* bench.h - "dlock bench": what a lock costs at this service, from here. */
#ifndef DLOCK_CLI_BENCH_H
#define DLOCK_CLI_BENCH_H

#include "request.h"

int bench(request *request);

#endif
