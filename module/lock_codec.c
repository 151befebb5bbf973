/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_codec.c - see lock_codec.h for the layout. */
#include "lock_codec.h"

#include <string.h>

enum {
    VERSION = 1,
    AT_VERSION = 0,
    AT_FENCE = 1,
    AT_SINCE = 9,
    AT_LEASE = 17,
    AT_EXPIRES = 21,
};

/* Written out rather than in a loop: compilers make one store of each of these. */
static void put_le32(char *at, int64_t value) {
    at[0] = (char)value;
    at[1] = (char)(value >> 8);
    at[2] = (char)(value >> 16);
    at[3] = (char)(value >> 24);
}

static void put_le64(char *at, int64_t value) {
    put_le32(at, value);
    put_le32(at + 4, value >> 32);
}

static int64_t get_le(const char *at, size_t size) {
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++)
        value |= (uint64_t)(unsigned char)at[i] << (8 * i);
    return (int64_t)value;
}

size_t lock_encode(const lock_state *state, char out[LOCK_CODEC_SIZE_MAX]) {
    int64_t expires = state->expires_ms == LOCK_NO_EXPIRY ? 0 : state->expires_ms;
    out[AT_VERSION] = VERSION;
    put_le64(out + AT_FENCE, state->fence);
    put_le64(out + AT_SINCE, state->since_ms);
    put_le32(out + AT_LEASE, state->lease_ms);
    put_le64(out + AT_EXPIRES, expires);
    memcpy(out + LOCK_CODEC_HEADER_SIZE, state->token.bytes, state->token.length);
    return LOCK_CODEC_HEADER_SIZE + state->token.length;
}

static bool is_within(int64_t value, int64_t first, int64_t last) {
    return value >= first && value <= last;
}

bool lock_decode(const char *bytes, size_t size, lock_state *state) {
    if (size <= LOCK_CODEC_HEADER_SIZE || size > LOCK_CODEC_SIZE_MAX) return false;
    if (bytes[AT_VERSION] != VERSION) return false;

    int64_t expires = get_le(bytes + AT_EXPIRES, 8);
    lock_state read = {
        .kind = LOCK_KIND_LOCK,
        .token = {bytes + LOCK_CODEC_HEADER_SIZE, size - LOCK_CODEC_HEADER_SIZE},
        .fence = get_le(bytes + AT_FENCE, 8),
        .since_ms = get_le(bytes + AT_SINCE, 8),
        .lease_ms = get_le(bytes + AT_LEASE, 4),
        .expires_ms = expires == 0 ? LOCK_NO_EXPIRY : expires,
    };
    if (!is_within(read.fence, 1, LOCK_FENCE_LIMIT - 1)) return false;
    if (!is_within(read.since_ms, 0, LOCK_TIME_LIMIT_MS - 1)) return false;
    if (!is_within(read.lease_ms, 1, LOCK_LEASE_MAX_MS)) return false;
    if (!is_within(expires, 0, LOCK_TIME_LIMIT_MS - 1)) return false;
    *state = read;
    return true;
}
