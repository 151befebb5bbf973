/* SPDX-License-Identifier: BSD-3-Clause */
/* cancel.h - takes a lock in a way that a signal can end at any moment. For one thread. */
#ifndef DLOCK_CLI_CANCEL_H
#define DLOCK_CLI_CANCEL_H

#include <dlock.h>

/* From now on these signals, up to a 0, end a cancel_acquire(), also one that begins later. */
void cancel_catch(const int signals[]);

/* The first signal that came; 0: none. */
int cancel_signal(void);

/* Takes the lock. Without a limit (DLOCK_WAIT_FOREVER) the service must be there at first; from
 * then on the wait goes on whatever happens. on_busy: NULL, or called once when a wait begins
 * because another holds the lock. DLOCK_CANCELED: a signal came, and the lock is not held. */
dlock_status cancel_acquire(dlock_lock *lock, int64_t wait_ms, void (*on_busy)(void *arg),
                            void *arg);

#endif
