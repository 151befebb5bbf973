/* SPDX-License-Identifier: BSD-3-Clause */
/* options.h - the caller's options: checked, copied, with the defaults filled in. */
#pragma once

#include "deployment/topology.h"
#include "dlock.h"
#include "handlers/log_file.h"
#include "net/tls.h"

enum { OPTIONS_ERROR_SIZE = 200, OPTIONS_LEASE_MIN_MS = 10 };

/* Both: NULL, or the first error, for people; text is room for an error with details. given may be
 * NULL where every option has a default. */
const char *options_read_client(dlock_client_options *options, topology *topology,
                                const dlock_client_options *given, char text[OPTIONS_ERROR_SIZE]);
const char *options_read_lock(dlock_lock_options *options, const dlock_lock_options *given);

/* The TLS context that the options describe; NULL if no URL is rediss://. DLOCK_INVALID: the error
 * is in text. */
dlock_status options_open_tls(tls_context **context, const dlock_client_options *options,
                              const topology *topology, char text[OPTIONS_ERROR_SIZE]);

/* The file of the access log; NULL if the options name no folder. DLOCK_INVALID: the file cannot be
 * opened; the error is in text. */
dlock_status options_open_log(log_file **file, const dlock_client_options *options,
                              char text[OPTIONS_ERROR_SIZE]);
