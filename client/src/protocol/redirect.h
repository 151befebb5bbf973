/* SPDX-License-Identifier: BSD-3-Clause */
/* redirect.h - hash slots of a cluster, and replies that send a client to another node. Pure. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum { SLOT_COUNT = 16384, REDIRECT_HOST_MAX = 255 };

#define HOST_UNKNOWN "?" /* a node that does not know its own host says so, or "" */

/* The slot of a key. Only the text between the first { and the next } counts, if there is any, so
 * keys can be kept together. */
unsigned slot_of_key(const char *key, size_t length);

typedef struct redirect {
    bool is_ask; /* for a single command, after ASKING; else the slot has moved for good */
    unsigned slot;
    char host[REDIRECT_HOST_MAX + 1]; /* "": the host that sent the redirect */
    int port;
} redirect;

/* error: as the server sent it, e.g. "MOVED 3999 127.0.0.1:6381". False: no redirect. */
bool redirect_read(redirect *redirect, const char *error);
