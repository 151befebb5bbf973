/* SPDX-License-Identifier: BSD-3-Clause */
/* connect.h - a client of the library as the request wants it. */
#ifndef DLOCK_CLI_CONNECT_H
#define DLOCK_CLI_CONNECT_H

#include "request.h"

/* They borrow from the request. */
dlock_client_options connect_options(const request *asked);

/* Looks at the options only. False: it was complained about. */
bool connect_check(const request *asked);

/* NULL: it was complained about, and *code is how to end. */
dlock_client *connect_client(const request *asked, int *code);

/* Takes it as the request says how long to wait. Without a limit it wants the service to be there
 * at first, and only then waits, whatever comes. */
dlock_status connect_acquire(dlock_lock *lock, int64_t wait_ms);

#endif
