/* SPDX-License-Identifier: BSD-3-Clause */
/* options.h - the caller's options: checked, copied, with the defaults filled in. */
#ifndef DLOCK_OPTIONS_H
#define DLOCK_OPTIONS_H

#include "deployment.h"
#include "dlock.h"
#include "tls.h"

enum { OPTIONS_WRONG_MAX = 200, OPTIONS_LEASE_MIN_MS = 10 };

/* Both: NULL, or what is wrong, for people, in text. given may be NULL where all has a default. */
const char *options_read_client(dlock_client_options *to, deployment *where,
                                const dlock_client_options *given, char text[OPTIONS_WRONG_MAX]);
const char *options_read_lock(dlock_lock_options *to, const dlock_lock_options *given);

/* What the options that were read say about TLS; NULL for a URL without it. DLOCK_INVALID: text
 * says what is wrong. */
dlock_status options_open_tls(tls_context **out, const dlock_client_options *from,
                              const deployment *where, char text[OPTIONS_WRONG_MAX]);

#endif
