/* SPDX-License-Identifier: BSD-3-Clause */
/* inspect.h - info: the holder of a lock; list: all held locks. */
#ifndef DLOCK_CLI_INSPECT_H
#define DLOCK_CLI_INSPECT_H

#include "sightings.h"

int inspect_info(request *request);
int inspect_list(request *request);

/* As a member of an array of JSON. */
void inspect_show_json(const sighting *lock);

#endif
