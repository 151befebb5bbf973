/* SPDX-License-Identifier: BSD-3-Clause */
/* access_log.h - the handler that writes a line for every acquire and release, and its file. */
#pragma once
#include "handlers/chain.h"

typedef struct access_log {
    dlock_log_fn sink;
    void *sink_arg;
} access_log;

dlock_handler access_log_handler(access_log *log);

/* -- log_file.c: a file of lines that rolls over every day. The caller of log_file_write() does not
 * wait for the disk: a thread writes. */

typedef struct log_file log_file;

/* dir/dlock-access.log; yesterday's file is dlock-access.log.YYYY-MM-DD (UTC), and keep of those
 * are kept. Several processes may share the file. A pipe or device in its place is written to, and
 * not rolled over. NULL: the file cannot be opened, a pipe has no reader, or no memory; errno. */
log_file *log_file_new(const char *dir, size_t keep);

/* Returns after all lines are written, or after a second if the disk or the reader hangs. NULL is
 * fine. */
void log_file_free(log_file *file);

/* A dlock_log_fn; arg: the file. Puts the time before the line. If the disk is so slow that the
 * buffer is full, the line is lost, and a later line says how many were. */
void log_file_write(void *arg, dlock_log_level level, const char *line);
