/* SPDX-License-Identifier: BSD-3-Clause */
/* log_file.h - a file of lines that rolls over every day. Whoever writes a line does not wait for
 * the disk: a thread does. */
#ifndef DLOCK_LOG_FILE_H
#define DLOCK_LOG_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LOG_LINE_SIZE = 4096 };

typedef struct log_file log_file;

/* dir/dlock-access.log; yesterday's is dlock-access.log.YYYY-MM-DD (UTC), and keep of those are
 * kept. Several processes may share it. NULL: the file cannot be opened, or no memory; errno. */
log_file *log_file_new(const char *dir, size_t keep);

/* After all lines are written; or after a second, if the disk hangs. */
void log_file_free(log_file *old);

/* The time is put before it. If the disk is so slow that the buffer is full, the line is lost,
 * and a later one says how many were. */
void log_file_write(log_file *to, bool is_error, const char *line);

#endif
