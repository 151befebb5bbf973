/* SPDX-License-Identifier: BSD-3-Clause */
/* escape.h - makes text from a server or another client safe for a terminal. Pure. */
#ifndef DLOCK_CLI_ESCAPE_H
#define DLOCK_CLI_ESCAPE_H

#include <stdbool.h>
#include <stddef.h>

/* The length of the UTF-8 character at the front; 0: not UTF-8. Overlong forms, surrogates and
 * truncated characters are not UTF-8. */
size_t escape_utf8_length(const char *bytes, size_t length);

/* The same for a character that cannot move the cursor or the text around: no control character
 * (C0, DEL, C1), no line separator, no mark that changes the direction of writing. */
size_t escape_safe_length(const char *bytes, size_t length);

/* Copies the safe characters, and every other byte as \xHH. A text that is too long is cut. The
 * result is safe. */
const char *escape_text(char *safe, size_t size, const char *bytes, size_t length);

#endif
