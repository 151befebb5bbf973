/* SPDX-License-Identifier: BSD-3-Clause */
/* chain.h - the handlers of a client, in order; see dlock_spi.h. */
#ifndef DLOCK_CHAIN_H
#define DLOCK_CHAIN_H

#include "claim.h"

typedef struct chain chain;

/* Room for so many. NULL: no memory. */
chain *chain_new(size_t capacity);
void chain_free(chain *old);

/* Copied, to its place by order, behind those of the same order. */
void chain_add(chain *to, const dlock_handler *added);

size_t chain_length(const chain *of);

/* slots: one for each handler, of the lock. */
dlock_status chain_run(const chain *of, claim *call, void **slots);

#endif
