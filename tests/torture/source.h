/* SPDX-License-Identifier: BSD-3-Clause */
/* source.h - all connections of this worker come from one address, so that partition.py can cut it
 * off from some of the servers. */
#pragma once

#include <sys/socket.h>

void source_set(const char *host);
