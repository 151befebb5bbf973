/* SPDX-License-Identifier: BSD-3-Clause */
/* batches.h - many extensions at several servers, all at once; of each a majority decides. */
#ifndef DLOCK_BATCHES_H
#define DLOCK_BATCHES_H

#include "claim.h"
#include "nodes.h"

/* As extend_all() of a backend. */
void batches_extend(nodes *of, claim *const claims[], dlock_status outcomes[], size_t count,
                    const interrupt *stop, int64_t limit_us);

#endif
