/* SPDX-License-Identifier: BSD-3-Clause */
/* access_log.h - the handler that writes a line for every acquire and release. */
#pragma once
#include "base/clock.h"
#include "dlock_spi.h"

typedef struct access_log {
    dlock_log_fn sink;
    void *sink_arg;
    const clock_source *clock;
} access_log;

dlock_handler access_log_handler(access_log *log);
