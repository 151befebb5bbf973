/* SPDX-License-Identifier: BSD-3-Clause */
/* option.h - the table of all options: names, letters, kinds of value, help; and strings that live
 * as long as the request. */
#ifndef DLOCK_CLI_OPTION_H
#define DLOCK_CLI_OPTION_H

#include "request.h"
#include <getopt.h>
#include <stddef.h>

typedef enum option_kind {
    OPTION_FLAG,
    OPTION_FLAG_ONCE, /* a flag for one call: only on the command line, not in a file */
    OPTION_TEXT,
    OPTION_NUMBER,
    OPTION_DURATION,
    OPTION_PATIENCE, /* a duration or "forever" */
    OPTION_URL
} option_kind;

typedef struct option_row {
    const char *name;
    char letter; /* or 0 */
    const char *value;
    unsigned commands; /* 0: only in a file */
    option_kind kind;
    size_t offset; /* of the field of the request */
    const char *help;
} option_row;

enum { OPTION_ROWS_MAX = 64 };

/* By its name with _ for -, as in a file. NULL: unknown. */
const option_row *option_of_key(const char *key);

/* For getopt_long(3), and its result. NULL: no option of the subcommand. */
void option_list(unsigned bit, struct option longs[OPTION_ROWS_MAX], char shorts[OPTION_ROWS_MAX]);
const option_row *option_of_value(int value, unsigned bit);

void option_show_help(unsigned bit);

/* Sets the field; the text must live as long as the request. URLs are added to those that are
 * there. False: the text is not of the kind. */
bool option_set(request *request, const option_row *row, const char *text);

/* The kind in words, for a complaint. */
const char *option_describe(const option_row *row);

/* -- strings that live as long as the program */

/* A copy, or room for size bytes, aligned for pointers and integers. Without memory the program
 * ends. */
char *keep(const char *text);
char *keep_room(size_t size);

#endif
