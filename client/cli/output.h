/* SPDX-License-Identifier: BSD-3-Clause */
/* output.h - stdout: JSON, and whether everything was written. */
#ifndef DLOCK_CLI_OUTPUT_H
#define DLOCK_CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* -- JSON: objects of texts, numbers and facts, and arrays of objects */

/* key: of a member of an object; else NULL. Each element of an array is on a line of its own. */
void json_array_begin(const char *key);
void json_array_end(void);
void json_object_begin(const char *key);
void json_object_end(void);

/* The members of an object. Bytes that are not UTF-8 are shown as U+FFFD. */
void json_text(const char *key, const char *text);
void json_bytes(const char *key, const char *bytes, size_t length);
void json_number(const char *key, int64_t number);
void json_decimal(const char *key, double number);
void json_fact(const char *key, bool fact);

/* -- the end */

/* Writes what is still in the buffer. The result is 0, or the errno of the first write that failed,
 * now or in an earlier call. */
int output_flush(void);

#endif
