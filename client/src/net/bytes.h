/* SPDX-License-Identifier: BSD-3-Clause */
/* bytes.h - a buffer that grows at its end and shrinks at its beginning. Pure. */
#pragma once
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* All zero: empty. */
typedef struct bytes {
    char *data;
    size_t size, capacity;
} bytes;

enum { BYTES_FIRST = 256 }; /* usually enough for a command, so that it takes one allocation */

/* Room for this many more. False: no memory. */
static inline bool bytes_reserve(bytes *bytes, size_t more) {
    if (bytes->size + more <= bytes->capacity) return true;
    size_t capacity = (bytes->size + more) * 2 + BYTES_FIRST;
    char *grown = realloc(bytes->data, capacity);
    if (grown == NULL) return false;
    bytes->data = grown;
    bytes->capacity = capacity;
    return true;
}

static inline bool bytes_append(bytes *bytes, const char *data, size_t size) {
    if (!bytes_reserve(bytes, size)) return false;
    if (size > 0) memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
    return true;
}

static inline void bytes_remove(bytes *bytes, size_t count) {
    bytes->size -= count;
    if (count > 0 && bytes->size > 0) memmove(bytes->data, bytes->data + count, bytes->size);
}
