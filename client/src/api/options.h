/* SPDX-License-Identifier: BSD-3-Clause */
/* options.h - the caller's options: checked, copied, with the defaults filled in. */
#pragma once
#include "deployment/topology.h"
#include "dlock_spi.h"
#include "handlers/access_log.h"
#include "net/tls.h"

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

/* All that a client is made from. The texts are the caller's, or in url. */
typedef struct settings {
    dlock_client_options client;
    dlock_lock_options lock; /* defaults of locks: 0 where neither options nor URL say more */
    dlock_backend backend;   /* a copy, if there is one */
    topology topology;
    url_options url;
    char error[OPTION_ERROR_SIZE]; /* an error with details */
} settings;

/* Both return NULL, or the first error, for people. given may be NULL if all options have defaults.
 * Options in given go before the URL, and those of a lock before the defaults of the client. */
const char *options_read_client(settings *settings, const dlock_client_options *given);
const char *options_read_lock(dlock_lock_options *options, const dlock_lock_options *given,
                              const dlock_lock_options *defaults, char text[OPTION_ERROR_SIZE]);

/* Copies a struct of another version of the header, which may be shorter, or longer with zeros
 * behind. given NULL: all zeros. False: something is set that this version does not know. */
bool options_copy(void *copy, size_t copy_size, const void *given);

/* Opens the files that the options name: a TLS context, NULL if no URL is rediss://, and the file
 * of the access log, NULL if no folder is named. Both are the caller's, whatever the status is.
 * DLOCK_INVALID: a file cannot be opened; see settings->error. */
dlock_status options_open_files(settings *settings, tls_context **context, log_file **file);

/* -- option_table.c: the options that have a name, their limits, and their values as parameters of
 * a URL. client/README.md has the same table for people. Pure. */

/* A url_taker; arg: a url_options. A name that is unknown, a value out of its range and URLs
 * that contradict each other are errors, and the message names the parameter. */
const char *url_options_take(void *arg, const char *name, const char *value);

/* Fills in the options that are 0 or NULL. The texts are not copied. is_lock: the structs are
 * dlock_lock_options, else dlock_client_options; so in the next function. */
void options_fill(void *options, const void *defaults, bool is_lock);
/* NULL, or the first option out of its range, in words; text: room for these. */
const char *options_check(const void *options, bool is_lock, char text[OPTION_ERROR_SIZE]);
