/* SPDX-License-Identifier: BSD-3-Clause */
/* diagnostics.h - lines for operators: connections, failovers, circuit breakers. A line is queued
 * with the mutex, and told without: whoever owns the diagnostics calls diagnostics_tell() from the
 * background thread. All functions: locked (loop.h). */
#pragma once
#include "dlock.h"
#include "net/loop.h"

typedef struct diagnostics {
    loop *loop;
    dlock_log_fn log; /* NULL: no line is kept */
    void *arg;
    void (*on_line)(struct diagnostics *diagnostics); /* there is a line to tell */
    /* Private to diagnostics.c. */
    list lines;
    size_t count;
} diagnostics;

void diagnostics_init(diagnostics *diagnostics, loop *loop, dlock_log_fn log, void *arg);

/* Queues "server: what: cause"; cause may be "". Best effort: a line is dropped without memory, or
 * if a thousand are waiting. diagnostics NULL: does nothing. */
void diagnose(diagnostics *diagnostics, dlock_log_level level, const char *server, const char *what,
              const char *cause);

/* Tells all lines, oldest first. Gives the mutex back meanwhile. */
void diagnostics_tell(diagnostics *diagnostics);
