/* SPDX-License-Identifier: BSD-3-Clause */
/* column.h - a text from outside, such as a name, in a column of a table: control characters are
 * shown as \xHH, a long text is cut. Pure. */
#ifndef DLOCK_CLI_COLUMN_H
#define DLOCK_CLI_COLUMN_H

#include <stddef.h>

enum { COLUMN_MAX = 256 };

/* At most width characters; is_padded: just that many. The result is text. */
const char *column_show(char text[COLUMN_MAX * 4 + 1], const char *bytes, size_t length,
                        size_t width, int is_padded);

#endif
