/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_codec.c - see lock_codec.h for the layout. */
#include "lock_codec.h"

#include <string.h>

enum {
    VERSION = 3,
    VERSION_OFFSET = 0,
    MODE_OFFSET = 1,
    FENCE_OFFSET = 2,
    LEASE_OFFSET = 10,
};

static void put_le(char *bytes, size_t size, int64_t value) {
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)((uint64_t)value >> (8 * i));
}

static int64_t get_le(const char *bytes, size_t size) {
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++)
        value |= (uint64_t)(unsigned char)bytes[i] << (8 * i);
    return (int64_t)value;
}

size_t lock_encode(const lock_state *state, char out[LOCK_CODEC_SIZE_MAX]) {
    out[VERSION_OFFSET] = VERSION;
    out[MODE_OFFSET] = state->is_shared;
    put_le(out + FENCE_OFFSET, 8, state->fence);
    put_le(out + LEASE_OFFSET, 4, state->lease_ms);
    memcpy(out + LOCK_CODEC_HEADER_SIZE, state->token.bytes, state->token.length);
    return LOCK_CODEC_HEADER_SIZE + state->token.length;
}

bool lock_decode(const char *bytes, size_t size, lock_state *state) {
    if (size <= LOCK_CODEC_HEADER_SIZE || size > LOCK_CODEC_SIZE_MAX) return false;
    if (bytes[VERSION_OFFSET] != VERSION) return false;
    if (bytes[MODE_OFFSET] != 0 && bytes[MODE_OFFSET] != 1) return false;

    lock_state read = {
        .kind = LOCK_KIND_LOCK,
        .is_shared = bytes[MODE_OFFSET] == 1,
        .token = {bytes + LOCK_CODEC_HEADER_SIZE, size - LOCK_CODEC_HEADER_SIZE},
        .fence = get_le(bytes + FENCE_OFFSET, 8),
        .lease_ms = get_le(bytes + LEASE_OFFSET, 4),
    };
    if (read.fence < 1 || read.fence >= LOCK_FENCE_LIMIT) return false;
    if (read.lease_ms < 1) return false;
    *state = read;
    return true;
}
