/* SPDX-License-Identifier: BSD-3-Clause */
/* options.h - the caller's options: checked, copied, with the defaults filled in. */
#pragma once
#include "api/option_table.h"
#include "deployment/topology.h"
#include "handlers/log_file.h"
#include "net/tls.h"

/* All that a client is made from. The texts are the caller's, or in url. */
typedef struct settings {
    dlock_client_options client;
    dlock_lock_options lock; /* defaults of locks: 0 where neither options nor URL say more */
    topology topology;
    url_options url;
    char error[OPTION_ERROR_SIZE]; /* an error with details */
} settings;

/* Both: NULL, or the first error, for people. given may be NULL where every option has a default.
 * Options in given go before the URL, and those of a lock before the defaults of the client. */
const char *options_read_client(settings *settings, const dlock_client_options *given);
const char *options_read_lock(dlock_lock_options *options, const dlock_lock_options *given,
                              const dlock_lock_options *defaults, char text[OPTION_ERROR_SIZE]);

/* The TLS context that the options describe; NULL if no URL is rediss://. DLOCK_INVALID: see
 * settings->error. */
dlock_status options_open_tls(tls_context **context, settings *settings);

/* The file of the access log; NULL if the options name no folder. DLOCK_INVALID: the file cannot be
 * opened; see settings->error. */
dlock_status options_open_log(log_file **file, settings *settings);
