/* SPDX-License-Identifier: BSD-3-Clause */
/* busy_names.h - names whose locks were busy lately: an acquire that may wait goes straight to a
 * connection of its own for them. A hint only: two names may share an entry. Pure. */
#pragma once
#include "base/text.h"
#include <stdbool.h>

enum { BUSY_NAMES_COUNT = 256, BUSY_NAMES_MS = 1000 };

/* All zero: empty. */
typedef struct busy_names {
    uint64_t hashes[BUSY_NAMES_COUNT];
    int64_t until_us[BUSY_NAMES_COUNT];
} busy_names;

/* The name counts as busy for the next BUSY_NAMES_MS. */
static inline void busy_names_note(busy_names *names, const char *name, int64_t now_us) {
    uint64_t hash = text_hash(name);
    names->hashes[hash % BUSY_NAMES_COUNT] = hash;
    names->until_us[hash % BUSY_NAMES_COUNT] = now_us + (int64_t)BUSY_NAMES_MS * 1000;
}

static inline bool busy_names_has(const busy_names *names, const char *name, int64_t now_us) {
    uint64_t hash = text_hash(name);
    size_t place = hash % BUSY_NAMES_COUNT;
    return names->hashes[place] == hash && now_us < names->until_us[place];
}
