/* SPDX-License-Identifier: BSD-3-Clause */
/* cluster_slot.h - the hash slot of a key in Redis Cluster. Pure. */
#ifndef DLOCK_CLUSTER_SLOT_H
#define DLOCK_CLUSTER_SLOT_H

#include <stddef.h>
#include <stdint.h>

enum { CLUSTER_SLOTS = 16384 };

/* The slot of a key: of what stands between its first { and the next }, unless that is empty or
 * missing; then of the whole key. */
uint16_t cluster_slot(const char *key, size_t length);

/* For each slot a number whose decimal form, appended to prefix, makes a key of that slot. prefix
 * has no { and at most 64 bytes. */
void cluster_slot_find_suffixes(const char *prefix, size_t length,
                                uint32_t suffixes[CLUSTER_SLOTS]);

#endif
