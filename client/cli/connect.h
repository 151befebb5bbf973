/* SPDX-License-Identifier: BSD-3-Clause */
/* connect.h - a client of the library as the request wants it, and a lock that it takes. */
#ifndef DLOCK_CLI_CONNECT_H
#define DLOCK_CLI_CONNECT_H

#include "request.h"

/* -- the client */

/* The options borrow from the request. */
dlock_client_options connect_options(const request *request);

/* Checks the options without any I/O. False: complained. */
bool connect_check(const request *request);

/* How the lock is to be held, without renewal and session. */
dlock_lock_options connect_lock_options(const request *request);

/* NULL: complained, and *code is the exit code. */
dlock_client *connect_client(const request *request, int *code);

/* -- in words */

/* For example "held by web1:812:5f0c for 3m20, 2 waiting"; "" if the lock is free or the service
 * does not reply. */
void holder_describe(dlock_client *client, const request *request, const char *name, char *text,
                     size_t size);

/* Says that a wait begins. holder: in words, or "". */
void connect_show_wait(const request *request, const char *name, const char *holder);

/* Says why a lock was not acquired, and returns the exit code. text: the holder if another holds
 * the lock, else the cause. The end of a wait is printed unless -q is given; the failure of
 * a single attempt, as of flock -n, only with -v. */
int connect_explain(const request *request, const char *name, dlock_status status,
                    const char *text);

/* -- acquire */

/* From now on these signals, up to a 0, end a cancel_acquire(), also one that begins later. */
void cancel_catch(const int signals[]);

/* The first signal that came; 0: none. */
int cancel_signal(void);

/* Takes a lock of the client. Unless the request is patient, the service must be there at first;
 * from then on the wait goes on whatever happens. on_busy: NULL, or called once when a wait begins
 * because another holds the lock. DLOCK_CANCELED: a signal came, and the lock is not held. */
dlock_status cancel_acquire(const request *request, dlock_client *client, dlock_lock *lock,
                            int64_t wait_ms, void (*on_busy)(void *arg), void *arg);

#endif
