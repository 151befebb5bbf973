/* SPDX-License-Identifier: BSD-3-Clause */
/* option_table.h - the options that have a name: their limits, and their values as parameters of a
 * URL. client/README.md has the same table for people. Pure. */
#pragma once
#include "dlock.h"

enum { OPTION_ERROR_SIZE = 200, OPTION_TEXTS_SIZE = 4096, OPTION_ROWS_MAX = 40 };
enum { OPTION_LEASE_MIN_MS = 10 };

/* The options that URLs set. {0} at first. */
typedef struct url_options {
    dlock_client_options client;
    dlock_lock_options lock; /* defaults of locks */
    bool is_given[OPTION_ROWS_MAX];
    char texts[OPTION_TEXTS_SIZE]; /* values that are texts */
    size_t texts_used;
    char error[OPTION_ERROR_SIZE];
} url_options;

/* Of a url_taker; arg: a url_options. A name that is unknown, a value out of its range and URLs
 * that contradict each other are errors, and the message names the parameter. */
const char *url_options_take(void *arg, const char *name, const char *value);

/* Both: of a dlock_lock_options, or else of a dlock_client_options.
 *
 * Fills in those options that are 0 or NULL. The texts are not copied. */
void options_fill(void *options, const void *defaults, bool is_lock);
/* NULL, or the first option out of its range, in words; text: room for these. */
const char *options_check(const void *options, bool is_lock, char text[OPTION_ERROR_SIZE]);
