/* SPDX-License-Identifier: BSD-3-Clause */
/* holder.h - who holds a lock, in a few words for a message. */
#ifndef DLOCK_CLI_HOLDER_H
#define DLOCK_CLI_HOLDER_H

#include "request.h"

/* For example "held by web1:812:5f0c for 3m20, 2 waiting"; "" if the lock is free or the service
 * does not reply. */
void holder_describe(dlock_client *client, const request *request, const char *name, char *text,
                     size_t size);

#endif
