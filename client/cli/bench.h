/* SPDX-License-Identifier: BSD-3-Clause */
/* bench.h - "dlock bench": measures the cost of a lock at the service. */
#ifndef DLOCK_CLI_BENCH_H
#define DLOCK_CLI_BENCH_H

#include "request.h"

int bench(request *request);

#endif
