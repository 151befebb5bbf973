/* SPDX-License-Identifier: BSD-3-Clause */
/* plain_commands.h - locks of a server without the module: strings with a TTL. Pure. */
#pragma once

#include "protocol/lock_commands.h"

extern const lock_protocol plain_protocol;

/* The scripts, for tests. */
extern const char plain_acquire[], plain_extend[], plain_release[];

/* A lock takes two commands to look at. Fills empty commands; the name is borrowed. */
void string_commands(command commands[2], const char *name);
/* Fills in all but server and name, from the replies; the token points into the first one. False:
 * there is no lock. */
bool string_read(dlock_inspection *inspection, const reply *value, const reply *ttl);
