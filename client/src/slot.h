/* SPDX-License-Identifier: BSD-3-Clause */
/* slot.h - which slot of a cluster a key belongs to, and what a node says when it is elsewhere.
 * Pure. */
#ifndef DLOCK_SLOT_H
#define DLOCK_SLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SLOT_COUNT = 16384, SLOT_HOST_MAX = 255 };

/* If there is something between the first { and the first } after it, only that counts: so keys can
 * be kept together. */
unsigned slot_of(const char *key, size_t length);

/* Where else to ask. */
typedef struct slot_hint {
    bool is_ask; /* only this once, after ASKING; else the slot has moved there for good */
    unsigned slot;
    char host[SLOT_HOST_MAX + 1]; /* "": the host that says so */
    int port;
} slot_hint;

/* error: as the server sent it, e.g. "MOVED 3999 127.0.0.1:6381". False: it is no such thing. */
bool slot_read_hint(slot_hint *to, const char *error);

/* "" for a host that a node does not know. */
const char *slot_known_host(const char *host);

#endif
