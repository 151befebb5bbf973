/* SPDX-License-Identifier: BSD-3-Clause */
/* batch.h - many extensions at one server, in one pipeline. */
#ifndef DLOCK_BATCH_H
#define DLOCK_BATCH_H

#include "claim.h"
#include "exchange.h"

typedef struct batch batch;

/* Each for its claim's lease_ms. NULL: no memory; then each outcome is DLOCK_NO_MEMORY. */
batch *batch_new(claim *const claims[], dlock_status outcomes[], size_t count,
                 uint32_t io_timeout_ms, int64_t limit_us);
void batch_free(batch *old);

/* To be asked. */
exchange *batch_exchange(batch *of);

/* After it was asked: each outcome and its claim's cause, is_passing and asked_us are set. */
void batch_read(batch *of);

#endif
