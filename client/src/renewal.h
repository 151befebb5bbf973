/* SPDX-License-Identifier: BSD-3-Clause */
/* renewal.h - extends locks in the background while they are held, and moves sessions to another
 * connection when theirs has ended. One thread for all locks of a client. */
#ifndef DLOCK_RENEWAL_H
#define DLOCK_RENEWAL_H

#include "backend.h"
#include "environment.h"
#include "hold.h"

typedef struct renewal renewal;
typedef struct renewed renewed; /* one acquisition of a lock */

/* Who is to be told that a lock is gone, or suspect, before its time; it must not call back. */
typedef void (*renewal_sooner_fn)(void *arg);

/* No thread yet. NULL: no memory. The backend must outlive it. */
renewal *renewal_new(backend *by, uint32_t connect_timeout_ms, uint32_t io_timeout_ms,
                     const environment *env);
/* Nothing may be renewed. */
void renewal_free(renewal *old);

/* Before the lock is asked for, so that nothing can fail once it is held. NULL: no memory, or no
 * thread. To be begun or dropped. */
renewed *renewal_prepare(renewal *in, const char *name);
void renewal_drop(renewal *in, renewed *unused);

/* The lock is held, as the claim says. Its session's connection is the renewal's until the end. */
void renewal_begin(renewal *in, renewed *prepared, hold *of, const claim *held,
                   renewal_sooner_fn on_sooner, void *arg);

/* It is given back, or lost: from now on neither hold nor handle are touched, and the session's
 * connection, if there is one still, is the handle's again. What is under way goes on without
 * effect here. False: there is something under way. */
bool renewal_end(renewal *in, renewed *old, claim_link *link);

/* While the handle extends it itself, it is not renewed. Waits for what is under way. */
void renewal_pause(renewal *in, renewed *which);
void renewal_resume(renewal *in, renewed *which);

uint64_t renewal_count(const renewal *of);

#endif
