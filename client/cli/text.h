/* SPDX-License-Identifier: BSD-3-Clause */
/* text.h - text for people: safe for a terminal, in columns, and times as people write them.
 * Pure. */
#ifndef DLOCK_CLI_TEXT_H
#define DLOCK_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* -- escape: text from a server or another client, for a terminal */

/* The length of the UTF-8 character at the front; 0: not UTF-8. Overlong forms, surrogates and
 * truncated characters are not UTF-8. */
size_t escape_utf8_length(const char *bytes, size_t length);

/* The same for a character that cannot move the cursor or the text around: no control character
 * (C0, DEL, C1), no line separator, no mark that changes the direction of writing. */
size_t escape_safe_length(const char *bytes, size_t length);

/* Copies the safe characters, and every other byte as \xHH. A text that is too long is cut. The
 * result is safe. */
const char *escape_text(char *safe, size_t size, const char *bytes, size_t length);

/* -- columns: of tables */

enum { COLUMN_MAX = 256 };

/* The text, escaped, in at most width columns of a terminal; is_padded: just that many. The result
 * is text. */
const char *column_show(char text[COLUMN_MAX * 4 + 1], const char *bytes, size_t length,
                        size_t width, int is_padded);

/* How many bytes of a safe text fit into so many columns. */
size_t column_cut(const char *text, size_t width);

/* -- durations: 500ms, 5s, 2m, 1h, 1d; a bare number is seconds */

enum { DURATION_SIZE = 24 };

/* Up to a year. False: not a time. */
bool duration_parse(const char *text, int64_t *ms);

/* In at most five characters up to 99 days, for tables: 7ms, 1.5s, 12s, 3m20, 2h05, 4d. */
void duration_show(int64_t ms, char text[DURATION_SIZE]);

#endif
