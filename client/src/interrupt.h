/* SPDX-License-Identifier: BSD-3-Clause */
/* interrupt.h - what may end the waiting of one call: the descriptor it listens to besides its own,
 * and the flag that says whether it was cancelled. Whoever writes to the descriptor wakes the call
 * up; it then looks around and, if there is nothing for it, goes on. */
#ifndef DLOCK_INTERRUPT_H
#define DLOCK_INTERRUPT_H

#include <stdatomic.h>
#include <stdbool.h>

typedef struct interrupt {
    int fd;                    /* an eventfd, or negative: nobody wakes us */
    atomic_bool *is_requested; /* NULL: it cannot be cancelled */
    atomic_uint *bell; /* NULL, or what can wake it too while it does no I/O, at less cost */
} interrupt;

bool interrupt_is_requested(const interrupt *of);

/* Before looking around: what is written from now on wakes again. */
void interrupt_drain(const interrupt *of);

/* Async-signal-safe. */
void interrupt_wake(int fd);

/* A bell is heard by whoever waits for it to differ from what it was (environment.h). Ringing it
 * has two steps, so that the listener may be told in between and be gone after that.
 * Async-signal-safe. */
void interrupt_raise_bell(atomic_uint *bell);
void interrupt_ring_bell(const atomic_uint *bell);

/* A stock of eventfds, since a call needs one only while it goes on. One that is woken after it was
 * given back wakes the next user for nothing, which is harmless. */
typedef struct interrupt_stock interrupt_stock;

interrupt_stock *interrupt_stock_new(void);
void interrupt_stock_free(interrupt_stock *old);

/* Negative: no descriptor to be had. */
int interrupt_stock_take(interrupt_stock *from);
void interrupt_stock_give(interrupt_stock *to, int fd);

#endif
