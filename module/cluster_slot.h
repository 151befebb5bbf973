/* SPDX-License-Identifier: BSD-3-Clause */
/* cluster_slot.h - the hash slot of a key in Redis Cluster. Pure. */
#ifndef DLOCK_CLUSTER_SLOT_H
#define DLOCK_CLUSTER_SLOT_H

#include <stddef.h>
#include <stdint.h>

enum { CLUSTER_SLOTS = 16384 };

/* The slot of a key. If the key has a hash tag, only the tag counts: the bytes between the first
 * { and the next }. Without a tag, or with an empty tag, the whole key counts. */
uint16_t cluster_slot(const char *key, size_t length);

/* Finds a number for each slot: prefix, followed by the number in decimal, is a key in the slot.
 * prefix has no { and at most 64 bytes. */
void cluster_slot_find_suffixes(const char *prefix, size_t length,
                                uint32_t suffixes[CLUSTER_SLOTS]);

#endif
